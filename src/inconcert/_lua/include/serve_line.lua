-- Hands free permits to those at the head of the line, in its order, each judged by its own limit.
--
-- Whoever sits in the process of the caller (`home`) is told by the script's reply, and the others through the inbox of
-- their process, if it listens: one whose process is gone is skipped.  A grant starts with a short lease, so that one who
-- cannot act on it holds up the line for a moment only; the next in line is told when to look again.
-- Deals with at most 100 places; if more may enter, retry_ms is 1, for "call again", and the next in line is told so.
-- Returns {retry_ms, grant, ...}: milliseconds until the next lease may lapse, and grants as 'HOLDER TOKEN END_MS'.
local function serve_line(holders, waiters, fence, inboxes, home, now_us)
  local now_ms = math.floor(now_us / 1000)
  local answer, is_news = {1}, false
  for number = 1, 101 do
    local place = redis.call('ZRANGE', waiters, 0, 0)[1]
    local limit, handoff_ms, holder, session, listens
    if place then
      limit, handoff_ms, holder, session = string.match(place, '^(%d+):(%d+):((.*)%.[^.]*)$')
      -- Asked before it is told: a message reaches those on a replica, too, who do not count.
      listens = session == home or redis.call('PUBSUB', 'NUMSUB', inboxes .. session)[2] > 0
    end
    local may_enter = listens and has_room(holders, tonumber(limit))
    if place and not listens then
      redis.call('ZREM', waiters, place)
    elseif may_enter and number <= 100 then
      redis.call('ZREM', waiters, place)
      local ends = string.format('%.0f', now_ms + handoff_ms)
      local grant = holder .. ' ' .. next_token(fence, now_us) .. ' ' .. ends
      redis.call('ZADD', holders, ends, holder)
      outlive(holders, tonumber(handoff_ms))
      is_news = true
      if session == home then
        answer[#answer + 1] = grant
      else
        redis.call('PUBLISH', inboxes .. session, grant)
      end
    else
      local look_at = may_enter and now_ms or redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2]
      if look_at then
        answer[1] = math.max(1, look_at - now_ms)
      end
      if is_news and place and session ~= home then
        redis.call('PUBLISH', inboxes .. session, holder .. ' 0 ' .. look_at)
      end
      return answer
    end
  end
  return answer
end
