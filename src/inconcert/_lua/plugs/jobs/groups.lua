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
