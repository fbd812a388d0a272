-- Flags a job that has something beside its body: the plain form of a script ends none that has more than waiters.
--
--     w  processes wait for its end       c  jobs run after it            m  messages were sent to it
--     p  it has reported its progress     s  steps of it are kept         u  it has something to undo
--     v  it is being undone, and ends then
--     a  attempts of it failed            x  it came back, and is to be cancelled
--     l  it was cancelled in its queue, and may have had a turn or a place there
--     0 to 9, the last one: its priority, if that is not 5
local function flag(facts, id, letter)
  local text = redis.call('HGET', facts, id)
  if not text then
    redis.call('HSET', facts, id, letter .. ' 0 0 ')
  elseif not string.find(text, '^%l*' .. letter) then
    redis.call('HSET', facts, id, letter .. text)
  end
end
