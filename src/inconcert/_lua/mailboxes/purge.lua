-- mailboxes/purge: drop all messages, those that are claimed too.
--
-- KEYS[1]  messages  hash    id -> 'LAPSES BODY'
-- KEYS[2]  unread    zset    id -> id
-- KEYS[3]  claims    zset    claim -> lease end, server ms
-- KEYS[4]  claimed   hash    claim -> 'MISSED ID ID ...'
-- KEYS[5]  dropped   string  how many were dropped unread and not yet reported
-- KEYS[6]  recent    hash    request -> its answer, 120 s
-- KEYS[7]  older     hash    the same, from before; at most 120 s
-- ARGV[1]  request   string, unique to this call
-- RETURNS  how many there were
-- TWICE    the same, and nothing is dropped, even if messages were sent in between
-- COST     O(1); the server frees the memory in the background
-- @include recall
-- @include remember
local messages, unread, claims, claimed, dropped = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local recent, older, request = KEYS[6], KEYS[7], ARGV[1]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local count = redis.call('HLEN', messages)
redis.call('HLEN', claimed)  -- a key that is not ours stops the script before it has changed anything
redis.call('ZCARD', unread)
redis.call('ZCARD', claims)
redis.call('GET', dropped)
redis.call('UNLINK', messages, unread, claims, claimed, dropped)
remember(recent, older, request, count)
return count
