-- members/look: drop those members whose lease has lapsed, and say when the next one ends.
--
-- KEYS  members values state
-- ARGV  changes  channel of the group
-- RETURNS  {left_ms, change, ...}: milliseconds until the next lease ends unless it is renewed, -1 if there is none; and the
--          changes, as they were published
-- TWICE    the same, counted from the second run; lapsed members are dropped once
-- COST     O(log N), N members; O(W) for each that has lapsed, W processes that listen
-- @include server_time
-- @include drop_members
local now_us = server_time()
local told = drop_members(members, values, state, changes, now_us)
local next_ms = redis.call('ZRANGE', members, 0, 0, 'WITHSCORES')[2]
return {next_ms and math.max(0, next_ms - math.floor(now_us / 1000)) or -1, unpack(told)}
