-- index/add: add a document, or replace its former version.
--
-- KEYS  documents words postings ranks scores sorted recent older
-- ARGV  request    string, unique to this call
-- ARGV  document   string
-- ARGV  text       its words in their order: ' red apples '
-- ARGV  values     its scores, as in `scores`; '' for none
-- ARGV  impacts..  each of its words and its impact key, 0 to 2^20 - 1
-- RETURNS  1
-- TWICE    the same, and nothing is changed, even if the document was changed in between
-- COST     O(M log N), M words of the document and of its former version, N words of all documents
-- @include recall
-- @include remember
-- @include forget_words
-- @include forget_ranks
if recall(recent, older, request) then
  return 1
end
local former_text = redis.call('HGET', documents, document) or ''
local former_values = redis.call('HGET', scores, document) or ''
-- All are read before one is changed: a key that is not ours stops the script here.
-- @guard words:hash
for _, key in ipairs({postings, ranks, sorted}) do
  -- @guard key:zset
end
-- First what grows: a full server refuses here, before anything is changed.
redis.call('HSET', documents, document, text)
remember(recent, older, request, 1)

local function new_number(word)
  local number = string.format('%.0f', redis.call('HINCRBY', words, '', 1))
  redis.call('HSET', words, word, number)
  redis.call('ZADD', sorted, 0, word)
  return number
end

local is_kept = {}
for i = IMPACTS, #ARGV, 2000 do  -- 1,000 words in one command
  local part, entries = {}, {}
  for j = i, math.min(i + 1999, #ARGV), 2 do
    part[#part + 1] = ARGV[j]
    is_kept[ARGV[j]] = true
  end
  local numbers = redis.call('HMGET', words, unpack(part))
  for k, word in ipairs(part) do
    local number, impact_key = numbers[k] or new_number(word), ARGV[i + 2 * k - 1]
    entries[2 * k - 1] = string.format('%.0f', number * 1048576 + impact_key)
    entries[2 * k] = number .. ' ' .. document
  end
  redis.call('ZADD', postings, unpack(entries))
end
forget_words(words, postings, sorted, document, former_text, is_kept)

forget_ranks(ranks, document, former_values)
redis.call('HDEL', scores, document)
for rank in string.gmatch(values, '[^\n]+') do
  redis.call('ZADD', ranks, 0, rank .. ' ' .. document)
  redis.call('HSET', scores, document, values)
end
return 1
