-- Whether a job may begin, as far as its limit and its rate are concerned that others share: there is room beside those that were
-- let in, and nobody waits in line for the same, unless it was let in.
-- @include let_in_of
-- @include read_rate
-- @include room_at
-- @include stored_limit
local function may_pass(limited, wait, put_ms, was_let_in)
  local known = wait.limit ~= '-' and stored_limit(limited, wait.named, put_ms)
  local rate = wait.rate and read_rate(limited.rates, limited.places, wait.rate, put_ms, limited.now_us)
  local count, cost, has_line = let_in_of(limited, wait)
  if has_line and not was_let_in or known and known.count + count >= known.most then
    return false
  end
  return not rate or room_at(rate, cost, wait.cost) <= limited.now_us
end
