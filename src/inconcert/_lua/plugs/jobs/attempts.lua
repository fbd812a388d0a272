-- plugs/jobs/attempts: the attempts of a job that failed, each with its error.
--
-- KEYS  failed_attempts
-- GUARD  failed_attempts:hash

-- @include read_reason
-- @include flag
-- Notes an attempt of a job, with its `id`, `attempts` and `began_ms`, that this worker ended: because of the `reason`, or because
-- it died if there is none. Each is a line of JSON; the latest 20 stay, or fewer if they have more than 32 KiB.
local function attempts_on_failure(keys, job, worker, reason, now_ms)
  local MOST, MOST_BYTES, MOST_TRACEBACK = 20, 32768, 2000
  local why, traceback = read_reason(reason or '')
  traceback = string.gsub(string.sub(traceback, -MOST_TRACEBACK), '^[\128-\191]+', '')  -- not from the middle of a character
  local described = redis.pcall('HGET', keys.described, worker)  -- only shown: a foreign key there must not stop what has begun
  local said = type(described) == 'string' and string.match(described, '{.*}')
  local is_json, about = pcall(cjson.decode, said or '{}')
  about = is_json and about or {}
  local parts = {job.attempts, reason and 'error' or 'worker_died', job.began_ms, string.format('%.0f', now_ms)}
  for _, part in ipairs({about.consumer or worker, about.host or '', about.pid or '', why, traceback}) do
    parts[#parts + 1] = tostring(part)
  end
  local lines = (redis.call('HGET', keys.failed_attempts, job.id) or '') .. cjson.encode(parts) .. '\n'
  local _, count = string.gsub(lines, '\n', '')
  while count > MOST or count > 1 and #lines > MOST_BYTES do
    lines, count = string.match(lines, '\n(.*)$'), count - 1
  end
  redis.call('HSET', keys.failed_attempts, job.id, lines)
  flag(keys.facts, job.id, 'a')
end

-- Keeps the attempts of those that are gone as long as what is kept of their end: `kept_ms` at the key `attempts_at`, which a job
-- has that may have some. Those of the dead stay where they are.
local function attempts_on_end(keys, jobs)
  for _, job in ipairs(jobs) do
    local lines = job.attempts_at and redis.call('HGET', keys.failed_attempts, job.id)
    if lines then
      redis.call('HDEL', keys.failed_attempts, job.id)
      if job.kept_ms > 0 then
        redis.call('SET', job.attempts_at, lines, 'PX', job.kept_ms)
      end
    end
  end
end

-- Drops those of the dead.
local function attempts_on_purge(keys, ids)
  redis.call('HDEL', keys.failed_attempts, unpack(ids))
end
