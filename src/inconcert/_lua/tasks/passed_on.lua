-- tasks/passed_on: note that other partitions know what concerns them.
--
-- KEYS  children followers outcomes parents unfollowed passing
-- ARGV  relations..  kind, parent, child, is_all: for each, at most 500; kind is 'tell' if the child was told | 'gone' if
--                    it has ended | 'follow' if the parent knows of the child | 'forget' if the parent has forgotten the child;
--                    is_all is 1 if nothing else of what was to be passed on is left
-- RETURNS  1
-- TWICE    1; all is noted already
-- COST     O(N log C + N P), N relations given, C pairs of children, P parents of each child
-- @include forget_child
-- @include strike_out
local FIELDS = 4  -- ARGV of each relation

for i = RELATIONS, #ARGV, FIELDS do
  local kind, parent, child, is_all = unpack(ARGV, i, i + 3)
  if kind == 'tell' then
    redis.call('ZREM', followers, parent .. ' ' .. child)
  elseif kind == 'gone' then
    forget_child(children, followers, outcomes, parent, child)
  else
    strike_out(kind == 'follow' and unfollowed or parents, child, parent)
  end
  if is_all == '1' then
    redis.call('HDEL', passing, (kind == 'tell' or kind == 'gone') and parent or child)
  end
end
return 1
