-- forget takes a tenant without lanes out of the index; its counters are kept for a while.
--
-- KEYS[1]  tenants
-- KEYS[2]  counters of the tenant
-- KEYS[3], KEYS[4], KEYS[5]  its indexes
-- ARGV[1]  escaped name
-- ARGV[2]  ms for which the counters are kept
--
-- Returns 1, or 0 if it has lanes.

if redis.call('EXISTS', KEYS[3], KEYS[4], KEYS[5]) > 0 then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
