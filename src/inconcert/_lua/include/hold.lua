-- Gives a holder its permits, until this end.  It is a quarter of a millisecond late if a holder before it has lost its lease:
-- see follows_loss.  Returns whether one has, also in a second run.  The key outlives the lease, so that a lapse is noticed.
-- @include units_of
-- @include follows_loss
-- @include extend_ttl
-- @include remembered_ms
local function hold(holders, holder, end_ms, lease_ms, is_after_loss)
  local ends = string.format('%.2f', end_ms + (is_after_loss and .25 or 0))
  for _, unit in ipairs(units_of(holder)) do
    if redis.call('ZADD', holders, 'NX', ends, unit) == 0 then
      is_after_loss = is_after_loss or follows_loss(redis.call('ZSCORE', holders, unit))
      ends = string.format('%.2f', end_ms + (is_after_loss and .25 or 0))
      redis.call('ZADD', holders, ends, unit)
    end
  end
  extend_ttl(holders, lease_ms + remembered_ms())
  return is_after_loss
end
