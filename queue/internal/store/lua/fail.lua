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
  if KEYS[7] ~= KEYS[1] then
    call('SET', KEYS[7], 'dead', 'XX', 'KEEPTTL')
  end
else
  local at = now + ARGV[2]
  call('ZADD', KEYS[5], int(at), ARGV[3] .. ' ' .. ARGV[4])
  mail[1], mail[2] = '!later', int(at)
  if KEYS[7] ~= KEYS[1] then
    call('SET', KEYS[7], ARGV[3], 'XX', 'KEEPTTL')
  end
end
local meta = call('HMGET', KEYS[1], 'hungry', 'counted')
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
