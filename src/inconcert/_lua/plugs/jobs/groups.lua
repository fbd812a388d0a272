-- plugs/jobs/groups: jobs that are members of a group, or its callback.
--
-- KEYS  groups settled news
-- GUARD  groups:hash settled:zset

-- @include group_of
-- @include count_member
-- @include let_go_results
-- Counts what became of members, and lets their results go when the callback is gone.
local function groups_on_end(keys, jobs)
  for _, job in ipairs(jobs) do
    local group = group_of(job.id)
    if group and count_member(keys, group, string.match(job.outcome, '^%l+'), job.id, job.is_gone and job.outcome) then
      job.is_news = true
    elseif not group and job.is_gone and string.find(job.id, '~then.', 1, true) then
      let_go_results(keys, job.id)
    end
  end
end

-- @include group_of
-- @include count_member
-- @include let_go_results
-- Counts members that can succeed no more, and lets results go that no callback can read.
local function groups_on_purge(keys, ids)
  for _, id in ipairs(ids) do
    local group = group_of(id)
    if group then
      count_member(keys, group, 'purged', id, 'cancelled ')
    elseif string.find(id, '~then.', 1, true) then
      let_go_results(keys, id)
    end
  end
end

-- @include group_of
-- @include count_member
-- Counts a member that is not dead any more.
local function groups_on_replay(keys, id)
  local group = group_of(id)
  if group then
    count_member(keys, group, 'replayed')
  end
end
