-- Notes beside the last fencing token that a holder has lost its lease: next_token answers it once, with the next grant.
-- @include extend_ttl
-- @include remembered_ms
local function mark_lost(fence)
  local last = redis.call('GET', fence) or '0'
  redis.call('SET', fence, string.match(last, '^%d+') .. ' lost', 'KEEPTTL')
  extend_ttl(fence, remembered_ms())
end
