-- Writes the body of a job that may have had another one, and notes its priority, or that it has none any more.
-- @include read_facts
-- @include write_facts
local function rewrite_job(bodies, facts, id, put, envelope)
  redis.call('HSET', bodies, id, put .. envelope)
  local known = read_facts(redis.call('HGET', facts, id))
  known.flags = string.gsub(known.flags, '%d', '') .. (string.match(envelope, '^%d+%S* #[%x:]*!(%d)') or '')
  write_facts(facts, id, known)
end
