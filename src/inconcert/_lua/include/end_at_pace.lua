-- When all permits are back, if one comes back each `to_us` instead of each `from_us`, from now on.
local function end_at_pace(end_us, from_us, to_us, now_us)
  if from_us == to_us or end_us <= now_us then
    return end_us
  end
  return now_us + math.ceil((end_us - now_us) * to_us / from_us)
end
