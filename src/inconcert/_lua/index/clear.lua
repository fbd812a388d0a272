-- index/clear: remove all documents.
--
-- KEYS  documents words postings ranks scores sorted recent older
-- ARGV  request  string, unique to this call
-- RETURNS  1
-- TWICE    the same, and nothing is changed, even if documents were added in between
-- COST     O(1); the server frees the memory beside its work
-- @include recall
-- @include remember
if not recall(recent, older, request) then
  redis.call('UNLINK', documents, words, postings, ranks, scores, sorted)
  remember(recent, older, request, 1)
end
return 1
