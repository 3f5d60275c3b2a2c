-- renew extends the leases of running jobs.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  lease in µs
-- ARGV[2]  then the tokens
--
-- Returns {now, then the tokens that are lost}.

-- A full Redis lets a script go on that has begun by making room, and refuses all others:
-- leases are to live on there too.
redis.call('ZREM', Q .. 'leases', '')
local pulse = redis.call('HMGET', Q .. 'pulse', 'beat', 'amnesty')
redis.call('HSET', Q .. 'pulse', 'beat', int(now),
  'amnesty', int(amnesty_after(pulse[1], pulse[2], tonumber(ARGV[1]))))
local lost = { now }
for i = 2, #ARGV do
  if redis.call('ZSCORE', Q .. 'leases', ARGV[i]) then
    redis.call('ZADD', Q .. 'leases', int(now + ARGV[1]), ARGV[i])
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
