-- index/clear: remove all documents.
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
-- RETURNS  1
-- TWICE    the same, and nothing is changed, even if documents were added in between
-- COST     O(1); the server frees the memory beside its work
-- @include recall
-- @include remember
local documents, words, postings, ranks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local scores, sorted, recent, older = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local request = ARGV[1]
if not recall(recent, older, request) then
  redis.call('UNLINK', documents, words, postings, ranks, scores, sorted)
  remember(recent, older, request, 1)
end
return 1
