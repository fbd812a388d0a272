-- index/search: read on in lists of documents, and answer those that match with what ranks them.
--
-- KEYS  documents words postings ranks scores
-- ARGV  query    JSON: words, without; has, has_not: parts of the text; names of scores
-- ARGV  most     number 1 to 1000, how many documents of each list
-- ARGV  lists..  each a kind ('word', 'highest', 'lowest'), a word or the name of a score, and the entry after which
--                to go on, '' to begin. An entry is 'LACK DOCUMENT' for a word, 'PLACE DOCUMENT' for a score
-- RETURNS  {{the last entry read of each list, '' at its end}, {document, impact key of each word, sort key of each score or '', ...}}
-- TWICE    the same; nothing is changed
-- COST     O(M (K + log N) + T), M documents read, K words in the query, N words of all documents, T bytes of their texts if
--          parts of them are looked for: 16 MB, and no more than one text of each list beyond
-- @include if_small
local asked = cjson.decode(query)
local SPAN = 1048576  -- of one word in the postings
local MOST_TEXT = 16777216  -- bytes to look for parts in, in one script

local number = {}
for _, list in ipairs({asked.words, asked.without}) do
  for _, word in ipairs(list) do
    number[word] = redis.call('HGET', words, word)
  end
end

-- The entries of a word that come after this one.
local function read_word(word, after)
  if not number[word] then
    return {}
  end
  local low, prefix = number[word] * SPAN, number[word] .. ' '
  local impact_key, document = string.match(after, '^(%d+) (.*)$')
  local score, from = string.format('%.0f', low + (impact_key or 0)), nil
  if document and redis.call('ZSCORE', postings, prefix .. document) == score then
    from = redis.call('ZRANK', postings, prefix .. document) + 1
  else  -- the first, or a document that was changed meanwhile: then again those with its impact key
    from = redis.call('ZCOUNT', postings, '-inf', '(' .. score)
  end
  local flat, found = redis.call('ZRANGE', postings, from, from + most - 1, 'WITHSCORES'), {}
  for i = 1, #flat, 2 do
    if flat[i + 1] - low >= SPAN then
      break
    end
    found[#found + 1] = flat[i + 1] - low .. ' ' .. string.sub(flat[i], #prefix + 1)
  end
  return found
end

-- The entries that come after this one in the order of a score, those with the same score in the order of their names.
-- A sort key has 16 characters.
local function read_score(kind, name, after)
  local prefix, found = name .. ' ', {}
  local function read_up_to(stop)
    for _, entry in ipairs(redis.call(
      'ZRANGEBYLEX', ranks, '(' .. prefix .. after, '(' .. stop, 'LIMIT', 0, most - #found)) do
      after = string.sub(entry, #prefix + 1)
      found[#found + 1] = after
    end
  end
  if kind == 'highest' then
    read_up_to(name .. '!')
    return found
  end
  if after ~= '' then
    read_up_to(prefix .. string.sub(after, 1, 16) .. '!')  -- the rest of its sort key
  end
  while #found < most do
    local below = after == '' and name .. '!' or prefix .. string.sub(after, 1, 16)
    local next_entry = redis.call('ZREVRANGEBYLEX', ranks, '(' .. below, '(' .. prefix, 'LIMIT', 0, 1)[1]
    if not next_entry then
      break
    end
    after = string.sub(next_entry, #prefix + 1, #prefix + 17)
    read_up_to(prefix .. string.sub(after, 1, 16) .. '!')
  end
  return found
end

local text_read = 0

-- What ranks a document, or nil if it does not match.
local function judge(document)
  local row = {document}
  for i, word in ipairs(asked.words) do
    local score = number[word] and redis.call('ZSCORE', postings, number[word] .. ' ' .. document)
    if not score then
      return nil
    end
    row[i + 1] = score - number[word] * SPAN
  end
  for _, word in ipairs(asked.without) do
    if number[word] and redis.call('ZSCORE', postings, number[word] .. ' ' .. document) then
      return nil
    end
  end
  local text = #asked.has + #asked.has_not > 0 and redis.call('HGET', documents, document) or ''
  text_read = text_read + #text
  for _, part in ipairs(asked.has) do
    if not string.find(text, part, 1, true) then
      return nil
    end
  end
  for _, part in ipairs(asked.has_not) do
    if string.find(text, part, 1, true) then
      return nil
    end
  end
  local values = #asked.names > 0 and redis.call('HGET', scores, document) or ''
  for _, name in ipairs(asked.names) do
    local _, stop = string.find(values, '\n' .. name .. ' ', 1, true)
    row[#row + 1] = stop and string.sub(values, stop + 1, stop + 16) or ''
  end
  return row
end

local lasts, hits, is_judged, bytes = {}, {}, {}, 0
for i = LISTS, #ARGV, 3 do
  local kind, name, after = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local found = kind == 'word' and read_word(name, after) or read_score(kind, name, after)
  local last = #found == most and found[most] or ''
  for _, entry in ipairs(found) do
    local document = string.match(entry, '^%S+ (.*)$')
    local row = not is_judged[document] and judge(document) or {}
    is_judged[document] = true
    for _, fact in ipairs(row) do
      hits[#hits + 1] = fact
      bytes = bytes + #(fact .. '')
    end
    if text_read > MOST_TEXT then
      last = entry
      break
    end
  end
  lasts[#lasts + 1] = last
end
return if_small({lasts, hits}, bytes)
