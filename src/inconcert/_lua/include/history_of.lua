-- What `record_end` is to know of a job, by its body: 'ENQUEUED_MS MOST:TASK', and if its history keeps arguments a line with its
-- envelope, empty if that is too long; nil if its task has no history.
-- @include head_of
local function history_of(body)
  local MOST_BYTES = 4096
  local enqueued_ms, _, _, kept = head_of(body)
  local most = kept and string.match(kept, '^(.*)%+$')
  if not most then
    return kept and enqueued_ms .. ' ' .. kept
  end
  local text = string.match(body, '^%d+ %S+ %S+ (.*)$')
  return enqueued_ms .. ' ' .. most .. '\n' .. (#text <= MOST_BYTES and text or '')
end
