-- claims/compare: where the server and a worker differ in what the worker holds, which they do once the server went back in time.
--
-- KEYS  claimed bodies
--       claimed: hash, of this worker
-- ARGV  held..  id, position: of each job, or item, that the worker knows that it holds
-- RETURNS  {{position, ...}, {id, position, queue-name, ...}}: of the given ones, those that it does not hold, and that are to be
--          had by others; then each that it holds beside the given ones
-- TWICE    the same; nothing is changed
-- COST     O(N + C), N jobs given, C claimed
local entries, position_of, name_of = redis.call('HGETALL', claimed), {}, {}
for i = 1, #entries, 2 do
  if entries[i] ~= '#' then
    position_of[entries[i]], name_of[entries[i]] = string.match(entries[i + 1], '^(%d+) %d+ %d+ (.*)$')
  end
end
local gone, beside = {}, {}
for i = HELD, #ARGV, 2 do
  local id, position = ARGV[i], ARGV[i + 1]
  if position_of[id] == position then
    position_of[id] = nil
  elseif redis.call('HEXISTS', bodies, id) == 1 then
    gone[#gone + 1] = tonumber(position)
  end
end
for id, position in pairs(position_of) do
  for _, part in ipairs({id, tonumber(position), name_of[id]}) do
    beside[#beside + 1] = part
  end
end
return {gone, beside}
