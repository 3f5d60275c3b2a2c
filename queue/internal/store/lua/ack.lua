-- ack ends claims of jobs that need no more attempts.
--
-- KEYS[1]  meta
-- KEYS[2]  the worker's claims
-- KEYS[3]  notices
-- KEYS[4]  payload of the claim, if there is one claim and its payload is kept apart. Where the
--          claim was lost, the payload stays for whoever has the job
-- ARGV[1]  what the leader is told to refund, if one of the claims was still held; or ""
-- ARGV[2]  the first claim; then the others
--
-- Returns {now, how many of the claims were still held}.

local call = redis.call
expect(KEYS[1], 'hash')
expect(KEYS[2], 'hash')
expect(KEYS[3], 'stream')
local held = call('HDEL', KEYS[2], unpack(ARGV, 2))
if held > 0 and KEYS[4] then
  call('UNLINK', KEYS[4])
end
call('HINCRBY', KEYS[1], 'done', held)
local notices = { '!finished', table.concat(ARGV, '\n', 2) }
if ARGV[1] ~= '' and held > 0 then
  notices[#notices + 1], notices[#notices + 2] = '!refund', ARGV[1]
end
call('XADD', KEYS[3], '*', unpack(notices))
local time = call('TIME')
return { time[1] * 1000000 + time[2], held }
