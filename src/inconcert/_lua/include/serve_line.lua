-- Hands free permits to those at the head of the line, in its order, each judged by its own limit.
--
-- Whoever sits in the process of the caller (`home`) is told by the script's reply, and the others through the inbox of
-- their process.  One whose process is gone is skipped.  A grant starts with a short lease, so that one who cannot act on
-- it holds up the line for a moment only; the process of the next in line is told when to look again.
-- Deals with at most 100 places; if that was not enough, retry_ms is 1, for "call again".
-- Returns {retry_ms, grant, ...}: milliseconds until the next lease may lapse, and grants as 'HOLDER TOKEN END_MS'.
local function serve_line(holders, waiters, fence, inboxes, home, now_us)
  local now_ms = math.floor(now_us / 1000)
  local answer = {1}
  local told, is_news = {[home] = true}, false
  for _ = 1, 100 do
    local place = redis.call('ZRANGE', waiters, 0, 0)[1]
    local limit, handoff_ms, holder, session
    if place then
      limit, handoff_ms, holder, session = string.match(place, '^(%d+):(%d+):((.*)%.[^.]*)$')
    end
    if not place or redis.call('ZCARD', holders) >= tonumber(limit) then
      local nearest = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2]
      if nearest then
        answer[1] = math.max(1, nearest - now_ms)
      end
      if is_news and place and not told[session] then
        redis.call('PUBLISH', inboxes .. session, holder .. ' 0 ' .. nearest)
      end
      return answer
    end
    redis.call('ZREM', waiters, place)
    local ends = string.format('%.0f', now_ms + handoff_ms)
    local grant = holder .. ' ' .. next_token(fence, now_us) .. ' ' .. ends
    if session == home then
      answer[#answer + 1] = grant
    end
    if session == home or redis.call('PUBLISH', inboxes .. session, grant) > 0 then
      told[session], is_news = true, true
      redis.call('ZADD', holders, ends, holder)
      outlive(holders, tonumber(handoff_ms))
    end
  end
  return answer
end
