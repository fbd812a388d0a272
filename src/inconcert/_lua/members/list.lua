-- members/list: who is in a group, about 1,000 at a time.
--
-- KEYS  members values state
-- ARGV  cursor   0 to begin, then what the last call returned
-- ARGV  changes  channel of the group
-- RETURNS  {version, next cursor or 0, {member, value, ...}, {change, ...}}: some members may come twice; the changes are those
--          of members that have lapsed, as they were published
-- TWICE    the same; lapsed members are dropped once
-- COST     O(N), N members, at most about 1,000 of them; O(W) for each that has lapsed, W processes that listen
-- @include server_time
-- @include drop_members
local told = drop_members(members, values, state, changes, server_time())
local found = redis.call('HSCAN', values, cursor, 'COUNT', 1000)
return {redis.call('HGET', state, 'version') or '0', found[1], found[2], told}
