-- ack ends claims of jobs that need no more attempts.
--
-- KEYS[1]  meta
-- KEYS[2]  the worker's claims
-- KEYS[3]  mail
-- KEYS[4]  payload of the claim, if there is one claim and its payload is kept apart. Where the
--          claim was lost, the payload stays for whoever has the job
-- ARGV[1]  name of the worker
-- ARGV[2]  what the leader is told to refund, if one of the claims was still held; or ""
-- ARGV[3]  the first claim; then the others
--
-- Returns {now, how many of the claims were still held}.

local call = redis.call
local meta = call('HMGET', KEYS[1], 'hungry', 'counted')
expect(KEYS[2], 'hash')
expect(KEYS[3], 'stream')
local held = call('HDEL', KEYS[2], unpack(ARGV, 3))
if held > 0 and KEYS[4] then
  call('UNLINK', KEYS[4])
end
call('HINCRBY', KEYS[1], 'done', held)
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
