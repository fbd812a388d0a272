-- idempotency/keep: keep the answer to a call, unless one is kept already.
--
-- KEYS  answer
-- ARGV  text    string, not empty: the answer
-- ARGV  ttl_ms  integer > 0
-- RETURNS  1 it is kept | 0 another is kept
-- TWICE    the same, and nothing is changed while it is kept
-- COST     O(N), N bytes of the answer
if redis.call('SET', answer, text, 'PX', ttl_ms, 'NX') or redis.call('GET', answer) == text then
  return 1
end
return 0
