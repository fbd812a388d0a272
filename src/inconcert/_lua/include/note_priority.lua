-- Notes the priority of a new job among what is known of it, and returns that; nil, and nothing is noted, if its envelope has none.
local function note_priority(facts, id, envelope)
  local priority = string.match(envelope, '^%d+%S* #[%x:]*!(%d)')
  if priority then
    redis.call('HSET', facts, id, priority .. ' 0 0 ')
  end
  return priority
end
