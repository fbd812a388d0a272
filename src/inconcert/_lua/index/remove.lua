-- index/remove: remove a document; with the last one the index is deleted.
--
-- KEYS[1]  documents  hash  document -> its words in their order: ' red apples '
-- KEYS[2]  words      hash  word -> its number; '' -> the last number that was given
-- KEYS[3]  postings   zset  'NUMBER DOCUMENT' -> NUMBER * 2^20 + impact key
-- KEYS[4]  ranks      zset  'NAME PLACE DOCUMENT', all with the score 0
-- KEYS[5]  scores     hash  document -> its scores, each '\nNAME PLACE'
-- KEYS[6]  sorted     zset  words, all with the score 0
-- KEYS[7]  recent     hash  request -> its answer, 120 s
-- KEYS[8]  older      hash  the same, from before; at most 120 s
-- ARGV[1]  request    string, unique to this call
-- ARGV[2]  document   string
-- RETURNS  1 removed | 0 was not there
-- TWICE    the same, and nothing is changed, even if the document was added in between
-- COST     O(M log N), M words of the document, N words of all documents
-- @include recall
-- @include remember
-- @include forget_words
-- @include forget_ranks
local documents, words, postings, ranks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local scores, sorted, recent, older = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local request, document = ARGV[1], ARGV[2]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local text = redis.call('HGET', documents, document)
local values = redis.call('HGET', scores, document) or ''
-- All are read before one is changed: a key that is not ours stops the script here.
redis.call('HLEN', words)
for _, key in ipairs({postings, ranks, sorted}) do
  redis.call('ZCARD', key)
end
-- First what frees memory: after it a full server lets the rest pass.
redis.call('HDEL', documents, document)
remember(recent, older, request, text and 1 or 0)
if not text then
  return 0
end
forget_words(words, postings, sorted, document, text, {})
forget_ranks(ranks, document, values)
redis.call('HDEL', scores, document)
if redis.call('EXISTS', documents) == 0 then
  redis.call('DEL', words)  -- the last number, which is all that is left
end
return 1
