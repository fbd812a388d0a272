-- permits/acquire: take a permit, or join the line, or re-check from a place in it.
--
-- KEYS  holders waiters fence
-- ARGV  holder  string  'session.number', unique to this attempt; 'session.numberxN' takes N permits
-- ARGV  ttl_ms  number > 0
-- ARGV  line    'limit:handoff_ms ticket inboxes', in one text because only a caller that finds no free permit needs these
--               limit: of holders, > 0
--               handoff_ms: life of a lease handed to a process that may be stopped, until extended
--               ticket: -1 not to wait, 0 to join the line, otherwise the place to return to
--               inboxes: prefix of each session's inbox channel
-- RETURNS  token granted at once | {token, is_after_loss} the same; 1 if a holder before has lost its lease, and no grant has
--          told so yet
--          {token or 0, is_after_loss, now_ms, ticket, joined, retry_ms, grant, ...}: in line with that ticket (joined is 1
--          if it was not before), and the grants to others of this session, in serve_line's form
-- TWICE    a holder remains one, with a full lease and a new, larger token, and is told of a loss again; a waiter keeps
--          its place
-- COST     O(P log N), P permits, N holders and waiters

-- The usual case comes first, because each run makes the functions of the others anew: nobody holds or waits, the caller
-- wants one permit, and the last token is older, with no loss noted beside it.  It is written with few conversions and
-- arguments of commands, which are most of its work.
local HOUR_MS, REMEMBERED_MS = 3600000, 172800000  -- see next_token and remembered_ms
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)
local end_ms = now_ms + ttl_ms
local is_free = redis.call('EXISTS', holders, waiters) == 0
if is_free and not string.find(holder, 'x', 1, true) then  -- no other name has an x
  local last = redis.call('SET', fence, now_us, 'PXAT', now_ms + HOUR_MS, 'GET')
  if not last or (tonumber(last) or now_us) < now_us then
    redis.call('ZADD', holders, end_ms, holder)
    redis.call('PEXPIRE', holders, ttl_ms + REMEMBERED_MS)
    return now_us
  end
  redis.call('SET', fence, last, 'PX', HOUR_MS)  -- for next_token
end

-- @include next_token
-- @include extend_ttl
-- @include drop_lapsed
-- @include drop_places
-- @include has_room
-- @include hold
-- @include serve_line
local home = string.match(holder, '^(.*)%.')
local terms, limit, ticket, inboxes = string.match(line, '^((%d+):%d+) (%S+) (.*)$')
limit, ticket = tonumber(limit), tonumber(ticket)
if not is_free then
  drop_places(waiters, drop_lapsed(holders, fence, now_ms), home)
  is_free = redis.call('EXISTS', waiters) == 0 and has_room(holders, limit, holder)
end
if is_free then
  local token, is_after_loss = next_token(fence, now_us)
  is_after_loss = hold(holders, holder, end_ms, ttl_ms, is_after_loss)
  return {tonumber(token), is_after_loss and 1 or 0}
end

local place = terms .. ':' .. ttl_ms .. ' ' .. holder
local is_mine = redis.call('ZSCORE', holders, holder)
local joined = 0
if ticket >= 0 and not is_mine then
  if ticket == 0 then
    local last = redis.call('ZREVRANGE', waiters, 0, 0, 'WITHSCORES')[2]
    ticket = math.max(now_us, (tonumber(last) or 0) + 1)
  end
  joined = redis.call('ZADD', waiters, 'NX', string.format('%.0f', ticket), place)
  ticket = redis.call('ZSCORE', waiters, place)
end

local answer = serve_line(holders, waiters, fence, inboxes, home, now_us)
is_mine = is_mine or redis.call('ZSCORE', holders, holder)
is_free = redis.call('EXISTS', waiters) == 0 and has_room(holders, limit, holder)
local token, is_after_loss = 0, false
if is_mine or is_free then
  token, is_after_loss = next_token(fence, now_us)
  is_after_loss = hold(holders, holder, end_ms, ttl_ms, is_after_loss)
else
  extend_ttl(waiters, answer[1] + 60000)
end
return {tonumber(token), is_after_loss and 1 or 0, now_ms, tonumber(ticket), joined, unpack(answer)}
