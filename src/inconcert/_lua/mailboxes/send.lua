-- mailboxes/send: add messages, all of them or none, and wake the fetch that has waited longest.
--
-- KEYS  messages unread claims dropped waiters recent older last
-- ARGV  request       string, unique to these messages
-- ARGV  max_messages  number > 0: how many may be unread
-- ARGV  max_age_ms    integer > 0, or 0 to keep messages of any age
-- ARGV  inboxes       what the channel of each session's inbox begins with
-- ARGV  bodies..      JSON, 1 to 1,000 of them
-- RETURNS  0 done | 1 done, but call again to find someone in line
-- TWICE    nothing is added; the line is told again
-- COST     O(M log N), M messages added, N there
-- @include server_time
-- @include recall
-- @include remember
-- @include min_score
-- @include drop_unread
-- @include notify_line
local HOUR_MS = 3600000
local now_us = server_time()
if not recall(recent, older, request) then
  redis.call('GET', dropped)  -- a key that is not ours stops the script before it has changed anything
  -- @guard waiters:zset
  local newest = redis.call('ZREVRANGE', unread, 0, 0)[1]
  local before = math.max(tonumber(redis.call('GET', last) or 0), tonumber(newest or 0))
  local id = math.max(now_us, before + 1)  -- the clock may have been set back
  local fields, entries = {}, {}
  for i = BODIES, #ARGV do
    local text = string.format('%.0f', id + i - 5)
    fields[#fields + 1], fields[#fields + 2] = text, '0 ' .. ARGV[i]
    entries[#entries + 1], entries[#entries + 2] = text, text
  end
  -- First what grows most: a full server refuses here, before anything is changed.
  redis.call('HSET', messages, unpack(fields))
  redis.call('ZADD', unread, unpack(entries))
  redis.call('SET', last, entries[#entries], 'PX', string.format('%.0f', HOUR_MS + math.max(0, id - now_us) / 1000))
  remember(recent, older, request, 1)
  local excess = redis.call('ZCARD', unread) - max_messages
  if excess > 0 then
    drop_unread(messages, unread, dropped, redis.call('ZRANGE', unread, 0, math.min(excess, 2000) - 1))
  end
  if max_age_ms ~= '0' then
    local oldest = '(' .. min_score(now_us, max_age_ms)
    drop_unread(messages, unread, dropped, redis.call('ZRANGEBYSCORE', unread, '-inf', oldest, 'LIMIT', 0, 1000))
  end
end
return notify_line(unread, claims, waiters, inboxes, math.floor(now_us / 1000))
