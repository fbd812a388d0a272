-- For how long the loss of a lease is remembered, two days: a job of each night is told what became of the one before.
local function remembered_ms()
  return 172800000
end
