-- Ends the open round of a barrier and opens the next: publishes the outcome, and keeps it for participants that missed
-- the message.  The last 100 outcomes are kept, for an hour.
-- @include extend_ttl
-- @include publish
local function end_round(participants, order, rounds, round, verdict, changes)
  local HOUR_MS = 3600000
  redis.call('UNLINK', participants, order)  -- first: it frees memory, so a full server accepts the rest
  local outcome = round .. ' ' .. verdict
  redis.call('HSET', rounds, round, outcome, 'open', string.format('%.0f', round + 1))
  redis.call('HDEL', rounds, string.format('%.0f', round - 100))
  extend_ttl(rounds, HOUR_MS)
  publish(changes, outcome)
  return outcome
end
