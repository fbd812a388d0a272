-- Puts a new job where it waits for the ends of others, `open`, their ids with spaces between them.
-- @include count_waiting
local function put_waiting(keys, id, open, even_if, delay_ms, queue_name)
  count_waiting(keys.waiting, queue_name, 1)
  redis.call('HSET', keys.states, id, 'waiting ' .. delay_ms .. (even_if ~= '' and ':' .. even_if or '') .. ' ' .. queue_name)
  redis.call('HSET', keys.pending, id, open)
end
