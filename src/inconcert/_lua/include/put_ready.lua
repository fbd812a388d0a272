-- Puts jobs where they may run now: at the back of their queue, or with 'LPUSH' at its front, the last one then before the others.
-- One that has a priority comes among those of its priority instead.
-- @include rank
local function put_ready(facts, queue, delayed, ids, push)
  local plain = {}
  for n, known in ipairs(redis.call('HMGET', facts, unpack(ids))) do
    local priority = known and string.match(known, '^%l*(%d) ')
    if priority then
      rank(delayed, ids[n], priority, push)
    else
      plain[#plain + 1] = ids[n]
    end
  end
  if #plain > 0 then
    redis.call(push, queue, unpack(plain))
  end
end
