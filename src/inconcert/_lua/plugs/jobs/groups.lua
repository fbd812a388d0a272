-- plugs/jobs/groups: jobs that are members of a group.
--
-- KEYS  groups settled news
-- GUARD  groups:hash settled:zset

-- @include group_of
-- @include count_member
-- Counts what became of members.
local function groups_on_end(keys, jobs)
  for _, job in ipairs(jobs) do
    local group = group_of(job.id)
    if group and count_member(keys, group, string.match(job.outcome, '^%l+')) then
      job.is_news = true
    end
  end
end

-- @include group_of
-- @include count_member
-- Counts members that can succeed no more.
local function groups_on_purge(keys, ids)
  for _, id in ipairs(ids) do
    local group = group_of(id)
    if group then
      count_member(keys, group, 'purged')
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
