-- tasks/describe_jobs: what is stored of some jobs.
--
-- KEYS  bodies states dead reasons facts described
-- ARGV  head   what the envelopes of these jobs begin with, before any signature; '' for all
-- ARGV  ids..  of the jobs, 1 to 250
-- RETURNS  {looked, id, state, body, failures, crashes, about, why, ...}: at how many of the ids it looked, fewer than given if
--          these have 1 MiB; then each job that is there and begins so. The state is 'queued ', 'delayed QUEUE',
--          'waiting DELAY_MS QUEUE', 'running WORKER', 'cancelling WORKER' or 'failed DIED_MS'; about is what the worker
--          says of itself, or the reason; why is why its latest attempt failed, if it is not dead
-- TWICE    the same; nothing is changed
-- COST     O(N log D), N ids, D dead jobs
-- @include if_small
-- @include read_facts
local ids = {unpack(ARGV, IDS)}
local answer, bytes, looked, at = {0}, 0, 0, 1
local some_are_dead = redis.call('EXISTS', dead) == 1
local state = redis.call('HMGET', states, unpack(ids))
local texts = redis.call('HMGET', facts, unpack(ids))
for i, id in ipairs(ids) do
  if bytes >= 1048576 then
    break
  end
  local body = redis.call('HGET', bodies, id)
  looked, bytes = i, bytes + #(body or '')
  local start = head ~= '' and body and string.find(body, '{', 1, true) or 1
  if body and string.sub(body, start, start + #head - 1) == head then
    local where, about = state[i] or 'queued ', ''
    local died_ms = some_are_dead and redis.call('ZSCORE', dead, id)
    local worker = string.match(where, '^running (.+)$') or string.match(where, '^cancelling (.+)$')
    if died_ms then
      where, about = 'failed ' .. died_ms, redis.call('HGET', reasons, id) or ''
    elseif worker then
      about = redis.call('HGET', described, worker) or ''
    end
    local known = read_facts(texts[i])
    bytes = bytes + #about + #known.why
    answer[at + 1], answer[at + 2], answer[at + 3] = id, where, body
    answer[at + 4], answer[at + 5] = known.failures, known.crashes
    answer[at + 6], answer[at + 7] = about, known.why
    at = at + 7
  end
end
answer[1] = looked
return if_small(answer, bytes)
