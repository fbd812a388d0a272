-- Hands free permits to those at the head of the line, in its order, each judged by its own limit.
--
-- Waiters in the caller's process (`home`) are notified by the script's reply, and the others through the inbox of
-- their process, if it listens: one whose process is gone is skipped.  A process known to run, such as the caller's
-- or that of a waiter that joined within the last 0.1 s, gets a full lease.  Any other may be stopped, so it gets a
-- short one, which it extends: one that cannot act delays the line only briefly.  The next in line is told when to
-- re-check.  A lease ends half a millisecond late until its holder extends it, which marks it until then: see drop_lapsed.
-- Handles at most 100 places; if more may enter, retry_ms is 1, for "call again", and the next in line is told so.
-- Returns {retry_ms, grant, ...}: milliseconds until the next lease may lapse, and grants as 'HOLDER permit TOKEN AFTER_LOSS
-- END_MS LEASE_MS TERMS HOLDERS': with the terms of the place and the key, so that a process that no longer has that
-- address can release the permit.  With TOKEN 0 it says when to re-check.
-- @include has_room
-- @include hold
-- @include next_token
-- @include is_listening
-- @include publish
local function serve_line(holders, waiters, fence, inboxes, home, now_us)
  local now_ms = math.floor(now_us / 1000)
  local answer, is_news = {1}, false
  for number = 1, 101 do
    local place, ticket = unpack(redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES'))
    local terms, limit, lease_ms, ttl_ms, holder, session, listens
    if place then
      terms, limit, lease_ms, ttl_ms, holder, session = string.match(place, '^((%d+):(%d+):(%d+)) ((.*)%.[^.]*)$')
      -- Checked before publishing: a message also reaches listeners on a replica, which do not count.
      listens = session == home or is_listening(inboxes .. session)
    end
    local may_enter = listens and has_room(holders, tonumber(limit), holder)
    if place and not listens then
      redis.call('ZREM', waiters, place)
    elseif may_enter and number <= 100 then
      redis.call('ZREM', waiters, place)
      local age_us = now_us - ticket
      if session == home or (age_us >= 0 and age_us < 100000) then
        lease_ms = ttl_ms
      end
      local ends = string.format('%.0f', now_ms + lease_ms)
      local told = ' ' .. ends .. ' ' .. lease_ms .. ' ' .. terms .. ' ' .. holders
      local token, is_after_loss = next_token(fence, now_us)
      local grant = holder .. ' permit ' .. token .. (is_after_loss and ' 1' or ' 0') .. told
      hold(holders, holder, ends + .5, lease_ms, is_after_loss)
      is_news = true
      if session == home then
        answer[#answer + 1] = grant
      else
        publish(inboxes .. session, grant)
      end
    else
      local look_at = may_enter and now_ms or redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2]
      if look_at then
        look_at = math.ceil(look_at)
        answer[1] = math.max(1, look_at - now_ms)
      end
      if is_news and place and session ~= home then
        local told = string.format(' permit 0 0 %.0f 0 ', look_at) .. terms .. ' ' .. holders
        publish(inboxes .. session, holder .. told)
      end
      return answer
    end
  end
  return answer
end
