-- lock gives a lock to another holder for the rest of its time, or lifts it.
--
-- KEYS[1]  the lock
-- ARGV[1]  who holds it
-- ARGV[2]  who is to hold it, or "" for nobody
--
-- Returns 1, or 0 if somebody else holds the lock, or nobody.

local call = redis.call
local holder = call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return holder == ARGV[2] and 1 or 0
elseif ARGV[2] == '' then
  call('DEL', KEYS[1])
else
  call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
return 1
