-- Reads what is known of a job beside its body: its flags, how many attempts failed, how many workers died with it, and why
-- the latest attempt failed.  Of a job of which nothing is known there is no text.
local function read_facts(text)
  local flags, failures, crashes, why = string.match(text or ' 0 0 ', '^(%l*%d?) (%d+) (%d+) (.*)$')
  return {flags = flags, failures = tonumber(failures), crashes = tonumber(crashes), why = why}
end
