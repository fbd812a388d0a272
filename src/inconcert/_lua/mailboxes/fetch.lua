-- mailboxes/fetch: claim the oldest messages, or stand in line for them.
--
-- KEYS  messages unread claims claimed dropped waiters recent older
-- ARGV  address     'session.number', unique to this fetch; its claim is known by it
-- ARGV  ticket      number, -1 not to wait | 0 to join the line | the place to have back
-- ARGV  limit       number 1 to 1000, the most messages to claim; fewer if they have 1 MiB
-- ARGV  ttl_ms      number > 0
-- ARGV  max_age_ms  integer > 0, or 0 for messages of any age
-- ARGV  inboxes     what the channel of each session's inbox begins with
-- RETURNS  {1, missed, id, message, ...}: how many were dropped before them, and what was claimed
--          | {0, ticket, joined, retry_ms}: there is nothing; a waiter is in line (joined is 1 if not before)
-- TWICE    the same messages as long as they are claimed; or the same place in line; nothing if the fetch is over
-- COST     O(M log N), M messages claimed, put back or dropped, N there
-- @include server_time
-- @include recall
-- @include return_lapsed
-- @include min_score
-- @include drop_unread
-- @include next_recheck
-- @include notify_line
-- @include if_small
local HOUR_MS = 3600000
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
return_lapsed(messages, unread, claims, claimed, dropped, now_ms)

if recall(recent, older, address) then  -- this is its first sending, come late, and nobody listens
  return {0, -1, 0, next_recheck(claims, now_ms)}
end
local missed, mine = string.match(redis.call('HGET', claimed, address) or '', '^(%d+) (.*)$')
local found = {}
if mine then
  for id in string.gmatch(mine, '%d+') do
    found[#found + 1] = id
  end
else
  local oldest = min_score(now_us, max_age_ms)
  if max_age_ms ~= '0' then
    drop_unread(messages, unread, dropped, redis.call('ZRANGEBYSCORE', unread, '-inf', '(' .. oldest, 'LIMIT', 0, 1000))
  end
  found = redis.call('ZRANGEBYSCORE', unread, oldest, '+inf', 'LIMIT', 0, limit)
end

local ids, answer, from, bytes = {}, {1, 0}, 1, 0
while from <= #found and bytes < 1048576 do  -- ten at a time, for each may have 1 MiB
  for i, message in ipairs(redis.call('HMGET', messages, unpack(found, from, math.min(from + 9, #found)))) do
    if bytes < 1048576 then
      ids[#ids + 1] = found[from + i - 1]
      if message then
        answer[#answer + 1], answer[#answer + 2] = ids[#ids], message
        bytes = bytes + #message
      end
    end
  end
  from = from + 10
end

if #ids > 0 then
  if not mine then
    missed = redis.call('GET', dropped) or '0'
    redis.call('ZREM', waiters, address)
    redis.call('ZREM', unread, unpack(ids))
    if missed ~= '0' then
      redis.call('UNLINK', dropped)
    end
    redis.call('ZADD', claims, now_ms + ttl_ms, address)
    redis.call('HSET', claimed, address, missed .. ' ' .. table.concat(ids, ' '))
    notify_line(unread, claims, waiters, inboxes, now_ms)
  end
  answer[2] = tonumber(missed)
  return if_small(answer, bytes)
end

local joined = 0
if ticket >= 0 then
  if ticket == 0 then
    local newest = redis.call('ZREVRANGE', waiters, 0, 0, 'WITHSCORES')[2]
    ticket = math.max(now_us, (tonumber(newest) or 0) + 1)
  end
  joined = redis.call('ZADD', waiters, 'NX', string.format('%.0f', ticket), address)
  ticket = tonumber(redis.call('ZSCORE', waiters, address))
  redis.call('PEXPIRE', waiters, HOUR_MS)
end
return {0, ticket, joined, next_recheck(claims, now_ms)}
