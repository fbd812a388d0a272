-- mailboxes/purge: drop all messages, those that are claimed too.
--
-- KEYS  messages unread claims claimed dropped recent older
-- ARGV  request  string, unique to this call
-- RETURNS  how many there were
-- TWICE    the same, and nothing is dropped, even if messages were sent in between
-- COST     O(1); the server frees the memory in the background
-- @include recall
-- @include remember
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local count = redis.call('HLEN', messages)
-- @guard claimed:hash unread:zset claims:zset
redis.call('GET', dropped)
redis.call('UNLINK', messages, unread, claims, claimed, dropped)
remember(recent, older, request, count)
return count
