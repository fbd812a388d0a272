-- Writes what is known of a job beside its body, as read_facts() gives it; nothing if that is what is known of any.
local function write_facts(facts, id, known)
  if known.flags == '' and known.failures == 0 and known.crashes == 0 then
    redis.call('HDEL', facts, id)
  else
    redis.call('HSET', facts, id, string.format('%s %d %d ', known.flags, known.failures, known.crashes) .. known.why)
  end
end
