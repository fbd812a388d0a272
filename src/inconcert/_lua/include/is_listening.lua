-- Whether the process listens that has this inbox. On a cluster inboxes are sharded, and the node of the slot knows.
local function is_listening(inbox)
  return redis.call('PUBSUB', string.find(inbox, '^[^:]*:{') and 'SHARDNUMSUB' or 'NUMSUB', inbox)[2] > 0
end
