-- Forgets which parents of this partition a removed job waited for; those of other partitions are kept.
-- Returns how many were forgotten, and the others.
-- @include is_here
-- @include forget_child
local function forget_parents(parents, children, followers, outcomes, id, suffix)
  local count, elsewhere = 0, {}
  for parent in string.gmatch(redis.call('HGET', parents, id) or '', '%S+') do
    if is_here(parent, suffix) then
      forget_child(children, followers, outcomes, parent, id)
      count = count + 1
    else
      elsewhere[#elsewhere + 1] = parent
    end
  end
  if #elsewhere > 0 then
    redis.call('HSET', parents, id, table.concat(elsewhere, ' '))
  else
    redis.call('HDEL', parents, id)
  end
  return count, elsewhere
end
