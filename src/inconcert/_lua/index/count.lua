-- index/count: how many documents there are, and how many of them have each of these words and scores.
--
-- KEYS  documents words postings ranks
-- ARGV  lists..  each a kind ('word' or another), and a word or the name of a score
-- RETURNS  {documents, those on the first list, ...}
-- TWICE    the same; nothing is changed
-- COST     O(M log N), M lists, N words and scores of all documents
local counts = {redis.call('HLEN', documents)}
for i = LISTS, #ARGV, 2 do
  local kind, name = ARGV[i], ARGV[i + 1]
  local number = kind == 'word' and redis.call('HGET', words, name)
  if number then
    local from, to = string.format('%.0f', number * 1048576), string.format('(%.0f', (number + 1) * 1048576)
    counts[#counts + 1] = redis.call('ZCOUNT', postings, from, to)
  elseif kind == 'word' then
    counts[#counts + 1] = 0
  else
    counts[#counts + 1] = redis.call('ZLEXCOUNT', ranks, '[' .. name .. ' ', '(' .. name .. '!')
  end
end
return counts
