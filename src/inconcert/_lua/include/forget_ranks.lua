-- Removes a document from the lists of the scores in `values`.
local function forget_ranks(ranks, document, values)
  for rank in string.gmatch(values, '[^\n]+') do
    redis.call('ZREM', ranks, rank .. ' ' .. document)
  end
end
