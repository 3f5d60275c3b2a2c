-- leave takes a worker out of the fleet, unless it has been given something.
--
-- KEYS[1]  workers
-- KEYS[2]  the worker's record
-- KEYS[3]  its claims
-- KEYS[4]  its hand
-- ARGV[1]  name of the worker
--
-- Returns 1, or 0 if it has claims.

if redis.call('HLEN', KEYS[3]) > 0 then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2], KEYS[4])
return 1
