-- Removes a document from the lists of the words in `text`, except those in `is_kept`, and drops words without documents.
local function forget_words(words, postings, sorted, document, text, is_kept)
  for word in string.gmatch(text, '[^ ]+') do
    if not is_kept[word] then
      is_kept[word] = true  -- once is enough
      local number = redis.call('HGET', words, word)
      redis.call('ZREM', postings, number .. ' ' .. document)
      local from, to = string.format('%.0f', number * 1048576), string.format('(%.0f', (number + 1) * 1048576)
      if redis.call('ZCOUNT', postings, from, to) == 0 then
        redis.call('HDEL', words, word)
        redis.call('ZREM', sorted, word)
      end
    end
  end
end
