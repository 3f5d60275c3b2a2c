-- ack ends claims of jobs that need no more attempts.
--
-- KEYS[1]  meta
-- KEYS[2]  the worker's claims
-- KEYS[3]  notices
-- KEYS[4]  done
-- KEYS[5]  payload of the claim, if there is one claim and its payload is kept apart. Where the
--          claim was lost, the payload stays for whoever has the job
-- ARGV[1]  what the leader is told to refund, if one of the claims was still held; or ""
-- ARGV[2]  the lane of the only claim, if somebody is told that its job is done; or ""
-- ARGV[3]  the beginning of that job
-- ARGV[4]  the first claim; then the others
--
-- Returns {now, how many of the claims were still held}.

local call = redis.call
expect(KEYS[1], 'hash')
expect(KEYS[2], 'hash')
expect(KEYS[3], 'stream')
if ARGV[2] ~= '' then
  expect(KEYS[4], 'stream')
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local held = call('HDEL', KEYS[2], unpack(ARGV, 4))
if held > 0 and ARGV[2] ~= '' then
  call('XADD', KEYS[4], 'MAXLEN', '~', '100000', '*', 'lane', ARGV[2], 'at', string.format('%d', now), 'job', ARGV[3])
end
if held > 0 and KEYS[5] then
  call('UNLINK', KEYS[5])
end
call('HINCRBY', KEYS[1], 'done', held)
local notices = { '!finished', table.concat(ARGV, '\n', 4) }
if ARGV[1] ~= '' and held > 0 then
  notices[#notices + 1], notices[#notices + 2] = '!refund', ARGV[1]
end
call('XADD', KEYS[3], '*', unpack(notices))
return { now, held }
