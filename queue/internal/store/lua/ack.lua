-- ack ends claims of jobs that need no more attempts.
--
-- KEYS[1]  meta
-- KEYS[2]  the worker's claims
-- KEYS[3]  mail; then payloads to delete
-- ARGV[1]  name of the worker
-- ARGV[2]  what the leader is told to refund, if one of the claims was still held; or ""
-- ARGV[3]  then the claims: first those whose payloads are among KEYS, in their order. A claim
--          that was lost leaves its payload to whoever has the job
--
-- Returns {now, how many of the claims were still held}.

local call, held = redis.call, 0
for i = 4, #KEYS do
  if call('HDEL', KEYS[2], ARGV[i - 1]) == 1 then
    held = held + 1
    call('UNLINK', KEYS[i])
  end
end
if #ARGV >= #KEYS then
  held = held + call('HDEL', KEYS[2], unpack(ARGV, #KEYS))
end
call('HINCRBY', KEYS[1], 'done', held)
local meta = call('HMGET', KEYS[1], 'hungry', 'counted')
local mail = {}
if meta[1] == '1' then
  call('HSET', KEYS[1], 'hungry', '0')
  mail = { '!ended', ARGV[1] }
end
if meta[2] == '1' then -- the leader counts what runs
  for i = 3, #ARGV do
    mail[#mail + 1], mail[#mail + 2] = '!finished ' .. i, ARGV[i]
  end
end
if ARGV[2] ~= '' and held > 0 then
  mail[#mail + 1], mail[#mail + 2] = '!refund', ARGV[2]
end
if #mail > 0 then
  call('XADD', KEYS[3], '*', unpack(mail))
end
local time = call('TIME')
return { time[1] * 1000000 + time[2], held }
