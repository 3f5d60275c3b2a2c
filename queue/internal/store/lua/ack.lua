-- ack ends claims of jobs that need no more attempts.
--
-- KEYS[1]  meta
-- KEYS[2]  the worker's claims
-- KEYS[3]  notices
-- KEYS[4]  done, if there is one claim and more than its end is to be written; and then
-- KEYS[5]  its payload, if that is kept apart. Where the claim was lost, the payload stays for whoever
--          has the job
-- ARGV[1]  what the leader is told to refund, if one of the claims was still held; or ""
-- ARGV[2]  if there is KEYS[4]: the lane of the job that somebody is told is done, or ""; and then
-- ARGV[3]  its beginning
-- then the claims
--
-- Returns {now, how many of the claims were still held}.

local call = redis.call
expect(KEYS[1], 'hash')
expect(KEYS[2], 'hash')
expect(KEYS[3], 'stream')
local first, lane = 2, ''
if KEYS[4] then
  first, lane = 4, ARGV[2]
end
if lane ~= '' then
  expect(KEYS[4], 'stream')
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local held = call('HDEL', KEYS[2], unpack(ARGV, first))
if held > 0 and lane ~= '' then
  call('XADD', KEYS[4], 'MAXLEN', '~', '100000', '*', 'lane', lane, 'at', string.format('%d', now), 'job', ARGV[3])
end
if held > 0 and KEYS[5] then
  call('UNLINK', KEYS[5])
end
call('HINCRBY', KEYS[1], 'done', held)
local notices = { '!finished', table.concat(ARGV, '\n', first) }
if ARGV[1] ~= '' and held > 0 then
  notices[#notices + 1], notices[#notices + 2] = '!refund', ARGV[1]
end
call('XADD', KEYS[3], '*', unpack(notices))
return { now, held }
