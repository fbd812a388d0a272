-- permits/renew_many: make leases on many names last longer, each if it has not lapsed.
--
-- KEYS  holders..
--       holders: zset  of each name, as in permits/renew
-- ARGV  leases..  the holder and its ttl_ms, for each key
-- RETURNS  {answer, ...}, for each: 1 renewed | 0 not held, or lapsed | -1 the key holds something else; the others are renewed
-- TWICE    the same, counted from the second run
-- COST     O(M log N), M leases, 200 at most, N holders of each name
-- @include server_time
-- @include keep_lease
-- @include remembered_ms
local now_ms, after_ms = math.floor(server_time() / 1000), remembered_ms()
local answer = {}
for i, key in ipairs(KEYS) do
  local holder, ttl_ms = ARGV[LEASES + 2 * i - 2], tonumber(ARGV[LEASES + 2 * i - 1])
  local is_ours, is_held = pcall(keep_lease, key, holder, ttl_ms, now_ms, after_ms)
  answer[i] = is_ours and (is_held and 1 or 0) or -1
end
return answer
