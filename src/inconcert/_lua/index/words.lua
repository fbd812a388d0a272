-- index/words: the words that begin with these characters, and how many documents have each.
--
-- KEYS  sorted words postings
-- ARGV  prefix  string, not empty
-- RETURNS  word, count, ...: at most 1,000 words, in the order of their bytes
-- TWICE    the same; nothing is changed
-- COST     O(M log N), M words answered, N words of all documents
local answer = {}
for _, word in ipairs(redis.call('ZRANGEBYLEX', sorted, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, 1000)) do
  local low = redis.call('HGET', words, word) * 1048576
  answer[#answer + 1] = word
  answer[#answer + 1] = redis.call(
    'ZCOUNT', postings, string.format('%.0f', low), string.format('(%.0f', low + 1048576))
end
return answer
