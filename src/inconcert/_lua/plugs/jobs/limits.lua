-- plugs/jobs/limits: how many jobs run at once, and how often they begin.
--
-- KEYS  places held_back
-- GUARD  places:hash held_back:zset

-- @include free_places
-- Frees the places of jobs that are claimed no more; `queues` has the keys of those from which they come.
local function limits_on_release(keys, ids, queues)
  if #queues > 0 then
    free_places(keys.places, keys.held_back, keys.states, queues, ids)
  end
end
