-- Removes a document from the lists of the scores in `values`.
local function forget_ranks(ranks, document, values)
  for place in string.gmatch(values, '[^\n]+') do
    redis.call('ZREM', ranks, place .. ' ' .. document)
  end
end
