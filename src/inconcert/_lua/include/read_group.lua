-- What is noted of a group, 'STATE WHEN GIVEN TOTAL SUCCEEDED FAILED CANCELLED'; nil if there is no such group.
-- The state is 'open', 'closed' or 'cancelled'; `given` is the next member's number; `live` have not ended.
local function read_group(groups, id)
  local state, when, given, total, succeeded, failed, cancelled =
    string.match(redis.call('HGET', groups, id) or '', '^(%l+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  return state and {
    state = state, when = when, given = tonumber(given), total = tonumber(total), succeeded = tonumber(succeeded),
    failed = tonumber(failed), cancelled = tonumber(cancelled), live = total - succeeded - failed - cancelled,
  } or nil
end
