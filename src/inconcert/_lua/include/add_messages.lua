-- Adds messages to an answer: `count` of them from position `from` on, but none after they exceed 1 MiB. Returns the answer,
-- and the bytes of the messages.
local function add_messages(answer, messages, from, count)
  local stop, step, bytes = from + count, 1, 0
  while from < stop and bytes < 1048576 do
    for _, message in ipairs(redis.call('LRANGE', messages, from, math.min(from + step, stop) - 1)) do
      if bytes < 1048576 then
        answer[#answer + 1] = message
        bytes = bytes + #message
      end
    end
    from, step = from + step, math.min(step * 2, 16)
  end
  return answer, bytes
end
