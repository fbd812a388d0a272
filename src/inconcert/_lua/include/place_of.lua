-- The place of the nth that a claim takes, as text: n, in three digits, after the number of the claim. The server makes texts of
-- numbers by printf, at twice the cost.
local function place_of(number, n)
  return number .. string.char(48 + (n - n % 100) / 100, 48 + (n % 100 - n % 10) / 10, 48 + n % 10)
end
