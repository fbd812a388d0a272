-- What `record_end` is to know of a job, by its body: 'ENQUEUED_MS MOST:TASK'; nil if its task has no history.
local function history_of(body)
  local enqueued_ms, kept = string.match(body or '', '^(%d+) %d+%S* #(%d+:%x+)~?%d* ')
  return kept and enqueued_ms .. ' ' .. kept
end
