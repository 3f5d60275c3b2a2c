-- cancel makes sure that a waiting job with the caller's own ID never runs: it is
-- dropped when its turn comes.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  ID
--
-- Returns what the job was: "" if the ID is not known, "started", "dropped", "dead",
-- "cancelled", or "waiting", in which case it is cancelled now.

local where = call('GET', Q .. 'id:' .. ARGV[1])
if not where then
  return ''
end
if not string.find(where, ':', 1, true) then
  return where
end
call('SET', Q .. 'id:' .. ARGV[1], 'cancelled') -- known until it is dropped, however long it waits
return 'waiting'
