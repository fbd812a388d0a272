-- Whether a lease with this end was granted after a holder had lost its own: it ends a quarter of a millisecond late.
local function follows_loss(ends)
  return ends and ends % .5 > 0
end
