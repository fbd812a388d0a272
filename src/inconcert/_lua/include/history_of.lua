-- What `record_end` is to know of a job, by its body: 'ENQUEUED_MS MOST:TASK'; nil if its task has no history.
-- @include head_of
local function history_of(body)
  local enqueued_ms, _, _, kept = head_of(body)
  return kept and enqueued_ms .. ' ' .. kept
end
