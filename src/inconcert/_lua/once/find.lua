-- once/find: the value that was computed for a name, and whether it is still fresh.
--
-- KEYS  value
-- RETURNS  {text, 1 fresh | 0 old} | {'', 0} if there is none
-- TWICE    the same; nothing is changed
-- COST     O(N), N bytes of the value
-- @include server_time
-- @include if_small
local fresh_until_ms, text = string.match(redis.call('GET', value) or '', '^(%d+) (.*)$')
if not text then
  return {'', 0}
end
return if_small({text, tonumber(fresh_until_ms) * 1000 > server_time() and 1 or 0}, #text)
