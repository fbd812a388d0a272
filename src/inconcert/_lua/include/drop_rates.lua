-- Drops the rates of keys that are as if they had never been used, at most 10 more than the `count` that were used now, so that
-- they do not become ever more: for each, `held_back` has '~LOOK_MS LIMIT'.
local function drop_rates(places, held_back, now_us, count)
  local MORE, LATER_MS = 10, 1000
  local now_ms = math.floor(now_us / 1000)
  local to = string.format('(~%014.0f', now_ms)
  for _, entry in ipairs(redis.call('ZRANGEBYLEX', held_back, '[~', to, 'LIMIT', 0, count + MORE)) do
    local limit = string.match(entry, ' (%x+)$')
    local debt_us = tonumber(string.match(redis.call('HGET', places, limit) or '', '^%d+ %d+ %d+ %d+ %d+ (%d+) ') or 0)
    local first = redis.call('ZRANGEBYLEX', held_back, '[' .. limit .. ' ', '(' .. limit .. '!', 'LIMIT', 0, 1)[1]
    redis.call('ZREM', held_back, entry)
    if debt_us <= now_us and not first then
      redis.call('HDEL', places, limit)
    else
      local look_ms = math.max(math.ceil(debt_us / 1000) + 1, now_ms + LATER_MS)
      redis.call('ZADD', held_back, 0, string.format('~%014.0f %s', look_ms, limit))
    end
  end
end
