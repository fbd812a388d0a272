-- index/remove: remove a document; with the last one the index is deleted.
--
-- KEYS  documents words postings ranks scores sorted recent older
-- ARGV  request   string, unique to this call
-- ARGV  document  string
-- RETURNS  1 removed | 0 was not there
-- TWICE    the same, and nothing is changed, even if the document was added in between
-- COST     O(M log N), M words of the document, N words of all documents
-- @include recall
-- @include remember
-- @include forget_words
-- @include forget_ranks
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local text = redis.call('HGET', documents, document)
local values = redis.call('HGET', scores, document) or ''
-- All are read before one is changed: a key that is not ours stops the script here.
-- @guard words:hash
for _, key in ipairs({postings, ranks, sorted}) do
  -- @guard key:zset
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
