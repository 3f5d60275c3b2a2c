-- resign ends a leader's lease, so that another worker can lead at once, and tells one.
--
-- KEYS[1]  meta
-- KEYS[2]  hand of the worker that is to lead
-- ARGV[1]  the leader's token
-- ARGV[2]  "1" to tell that worker
--
-- Returns 1, or 0 if somebody else leads.

if redis.call('HGET', KEYS[1], 'leader') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'till', '0')
if ARGV[2] == '1' then
  redis.call('RPUSH', KEYS[2], '!lead')
  redis.call('PEXPIRE', KEYS[2], '60000')
end
return 1
