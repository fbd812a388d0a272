-- Adds messages to an answer: `count` of them from the place `from` on, or fewer: it stops at 1 MiB, or up to 16 later.
local function add_messages(answer, messages, from, count)
  local stop, step, bytes = from + count, 1, 0
  while from < stop and bytes < 1048576 do
    local part = redis.call('LRANGE', messages, from, math.min(from + step, stop) - 1)
    for _, message in ipairs(part) do
      answer[#answer + 1] = message
      bytes = bytes + #message
    end
    from, step = from + step, math.min(step * 2, 16)
  end
  return answer
end
