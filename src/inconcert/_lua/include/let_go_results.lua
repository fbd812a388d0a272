-- Lets the results of a group's members go, because its callback has ended: `sweep_groups` drops them.
-- @include server_time
-- @include read_group
-- @include store_group
local function let_go_results(keys, callback)
  local id = string.gsub(callback, '~then', '')
  local group = read_group(keys.groups, id)
  if group and group.results == 'kept' then
    group.results = string.format('%.0f', group.given)
    store_group(keys.groups, id, group)
    redis.call('ZADD', keys.settled, math.floor(server_time() / 1000), id)
  end
end
