-- members/look: drop those members whose lease has lapsed, and say when the next one ends.
--
-- KEYS[1]  members  zset    member -> lease end, server ms
-- KEYS[2]  values   hash    member -> its value, JSON
-- KEYS[3]  state    hash    version -> of the last change; turn:MEMBER -> the last turn of its claims
-- ARGV[1]  changes  channel of the group
-- RETURNS  {left_ms, change, ...}: milliseconds until the next lease ends unless it is renewed, -1 if there is none; and the
--          changes, as they were published
-- TWICE    the same, counted from the second run; lapsed members are dropped once
-- COST     O(log N), N members; O(W) for each that has lapsed, W processes that listen
-- @include server_time
-- @include drop_members
local members, values, state, changes = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local now_us = server_time()
local told = drop_members(members, values, state, changes, now_us)
local next_ms = redis.call('ZRANGE', members, 0, 0, 'WITHSCORES')[2]
return {next_ms and math.max(0, next_ms - math.floor(now_us / 1000)) or -1, unpack(told)}
