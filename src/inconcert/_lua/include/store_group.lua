-- Notes what has become of a group, as `read_group` reads it.
local function store_group(groups, id, group)
  redis.call('HSET', groups, id, string.format('%s %s %.0f %.0f %.0f %.0f %.0f%s', group.state, group.when, group.given, group.total,
    group.succeeded, group.failed, group.cancelled, group.results ~= '' and ' ' .. group.results or ''))
end
