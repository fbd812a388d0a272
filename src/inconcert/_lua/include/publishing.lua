-- The command that publishes on this channel: one with a hash tag is sharded, on the node of the script's keys.
local function publishing(channel)
  return string.find(channel, '^[^:]*:{') and 'SPUBLISH' or 'PUBLISH'
end
