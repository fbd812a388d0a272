-- Records the end of a job in the history of its task, if `about`, as history_of.lua has it, says that it has one.
-- `outcome` is 'succeeded JSON', 'failed JSON' or 'cancelled '; `began_ms` when its last attempt began, '' if it ended between or before its attempts.
-- Drops what is beyond the latest MOST; and with each tenth, of the task that is next in the set, what is older than 90 days,
-- so that nothing stays of tasks that are gone.
-- @include server_time
local function record_end(history, about, id, outcome, began_ms, attempts)
  local KEPT_MS, MOST_DROPPED, SWEEP_EVERY = 7776000000, 100, 10
  local enqueued_ms, most, task, envelope = string.match(about or '', '^(%d+) (%d+):(%x+)%+?(.*)$')
  if not task then
    return
  end
  local word, reason = string.match(outcome, '^(%l+) (.*)$')
  local line = ''
  if word == 'failed' then
    line = string.match(reason, '^{"reason":(".-"),"') or string.match(reason, '^{"reason":(".*")}') or ''
    attempts = string.match(reason, '"attempts":(%d+)}') or attempts
  end
  local now_ms = math.floor(server_time() / 1000)
  local start, stop = task .. ' ', task .. '!'
  local last = redis.call('ZREVRANGEBYLEX', history, '(' .. stop, '[' .. start, 'LIMIT', 0, 1)[1] or ''
  local number = (tonumber(string.match(last, '^%x+ (%d+)')) or 0) + 1
  local entry = string.format('%s%012.0f %s %.0f %s %s %s %s ', start, number, word, now_ms, enqueued_ms, began_ms, attempts, id)
  redis.call('ZADD', history, 0, entry .. line .. envelope)
  redis.call('PEXPIRE', history, KEPT_MS)

  local beyond = string.format('(%s%012.0f', start, math.max(0, number - most + 1))
  local dropped = redis.call('ZRANGEBYLEX', history, '[' .. start, beyond, 'LIMIT', 0, MOST_DROPPED)
  if number % SWEEP_EVERY == 0 then
    local following = redis.call('ZRANGEBYLEX', history, '[' .. stop, '+', 'LIMIT', 0, 1)[1]
    local other = string.match(following or redis.call('ZRANGE', history, 0, 0)[1], '^%x+') or task
    local oldest = redis.call('ZRANGEBYLEX', history, '[' .. other .. ' ', '(' .. other .. '!', 'LIMIT', 0, MOST_DROPPED)
    for _, each in ipairs(oldest) do
      if tonumber(string.match(each, '^%x+ %d+ %l+ (%d+) ') or 0) < now_ms - KEPT_MS then
        dropped[#dropped + 1] = each
      end
    end
  end
  if #dropped > 0 then
    redis.call('ZREM', history, unpack(dropped))
  end
end
