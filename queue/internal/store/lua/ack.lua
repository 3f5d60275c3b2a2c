-- ack ends claims of jobs that need no more attempts.
--
-- KEYS[1]  meta
-- KEYS[2]  the worker's claims
-- KEYS[3]  mail; then payloads to delete
-- ARGV[1]  name of the worker
-- ARGV[2]  number of payloads among KEYS, the last ones
-- ARGV[3]  then the claims
--
-- Returns {now, how many of the claims were still held}.

local call = redis.call
local held = call('HDEL', KEYS[2], unpack(ARGV, 3))
call('HINCRBY', KEYS[1], 'done', held)
for i = #KEYS - ARGV[2] + 1, #KEYS do
  call('UNLINK', KEYS[i])
end
local meta = call('HMGET', KEYS[1], 'hungry', 'till')
if meta[1] == '1' then
  call('HSET', KEYS[1], 'hungry', '0')
  call('XADD', KEYS[3], '*', '!ended', ARGV[1])
end
local time = call('TIME')
return { time[1] * 1000000 + time[2], held }
