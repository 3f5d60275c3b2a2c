-- mark notes in a claim that its handler is about to start.
--
-- KEYS[1]  the worker's claims
-- ARGV[1]  claim
--
-- Returns 1, or 0 if the claim was lost.

local job = redis.call('HGET', KEYS[1], ARGV[1])
if not job then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], '*' .. string.sub(job, 2))
return 1
