-- Forgets the attempts of a job, as if it were new; what it has is still flagged.
-- @include read_facts
-- @include write_facts
local function forget_attempts(facts, id)
  local known = read_facts(redis.call('HGET', facts, id))
  write_facts(facts, id, {flags = known.flags, failures = 0, crashes = 0, why = ''})
end
