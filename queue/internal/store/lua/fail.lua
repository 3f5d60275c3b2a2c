-- fail ends the claim of an attempt that did not succeed: the job waits for its next one, or is
-- dead.
--
-- KEYS[1]  meta
-- KEYS[2]  the worker's claims
-- KEYS[3]  mail
-- KEYS[4]  counters of the tenant
-- KEYS[5]  later
-- KEYS[6]  dead
-- KEYS[7]  the job's ID, or meta for a job without one
-- ARGV[1]  claim
-- ARGV[2]  µs until the next attempt, or -1 for none
-- ARGV[3]  lane's name
-- ARGV[4]  the job, as it goes on
-- ARGV[5]  the error, for people
-- ARGV[6]  what the leader is told to refund, or ""
-- ARGV[7]  the beginning of the error
--
-- In meta, failing is what tells whether most of the last attempts fail: "done failed done failed
-- mark last", the counters at two marks, and the instants of the newer mark and of this failure.
-- A mark is set by a failure, 20 attempts and 10 s after the one before: successes pay nothing.
--
-- Returns {now, 1}, or {now, 0} if the claim was lost.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local int = function(n) return string.format('%d', n) end
if call('HDEL', KEYS[2], ARGV[1]) == 0 then
  return { now, 0 }
end
local mail = {}
local function count(field)
  call('HINCRBY', KEYS[1], field, '1')
  pcall(call, 'HINCRBY', KEYS[4], field, '1') -- it may hold something else; the job goes on
end
count('failed')
if ARGV[2] == '-1' then
  call('XADD', KEYS[6], 'MAXLEN', '~', '100000', '*', 'lane', ARGV[3], 'error', ARGV[5], 'at', int(now), 'job', ARGV[4])
  count('dead')
else
  local at = now + ARGV[2]
  call('ZADD', KEYS[5], int(at), ARGV[3] .. ' ' .. ARGV[4])
  mail[1], mail[2] = '!later', int(at)
end
if KEYS[7] ~= KEYS[1] then
  call('SET', KEYS[7], ARGV[2] == '-1' and 'dead' or ARGV[3], 'XX', 'KEEPTTL')
end
local meta = call('HMGET', KEYS[1], 'hungry', 'counted', 'failing', 'done', 'failed')
local done, failed = tonumber(meta[4] or 0) or 0, (tonumber(meta[5] or 0) or 0) - 1
local marks = { string.match(meta[3] or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$') }
if not marks[6] or now - marks[6] > 1800000000 then -- what was long ago is of no interest
  marks = { done, failed, done, failed, int(now) }
elseif done + failed - marks[3] - marks[4] >= 20 and now - marks[5] >= 10000000 then
  marks = { marks[3], marks[4], done, failed, int(now) }
end
marks[6] = int(now)
call('HSET', KEYS[1], 'failing', table.concat(marks, ' '), 'error', ARGV[7])
if meta[1] == '1' then
  call('HSET', KEYS[1], 'hungry', '0')
  mail[#mail + 1], mail[#mail + 2] = '!ended', ''
end
if meta[2] == '1' then -- the leader counts what runs
  mail[#mail + 1], mail[#mail + 2] = '!finished', ARGV[1]
end
if ARGV[6] ~= '' then
  mail[#mail + 1], mail[#mail + 2] = '!refund', ARGV[6]
end
if #mail > 0 then
  call('XADD', KEYS[3], '*', unpack(mail))
end
return { now, 1 }
