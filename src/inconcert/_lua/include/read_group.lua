-- What is noted of a group, 'STATE WHEN GIVEN TOTAL SUCCEEDED FAILED CANCELLED[ RESULTS]'; nil if there is no such group.
-- The state is 'open', 'closed' or 'cancelled'; `given` is the next member's number; `live` have not ended; `results` is '' if
-- it keeps none, 'kept', or, once they were let go, how many numbers may still have one.
local function read_group(groups, id)
  local state, when, given, total, succeeded, failed, cancelled, results =
    string.match(redis.call('HGET', groups, id) or '', '^(%l+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) ?(%w*)$')
  return state and {
    state = state, when = when, given = tonumber(given), total = tonumber(total), succeeded = tonumber(succeeded),
    failed = tonumber(failed), cancelled = tonumber(cancelled), live = total - succeeded - failed - cancelled, results = results,
  } or nil
end
