-- beat says that a worker lives: it renews the worker's lease, and with it all its claims.
--
-- KEYS[1]  meta
-- KEYS[2]  workers
-- KEYS[3]  the worker's record
-- KEYS[4]  its claims
-- KEYS[5]  notices
-- ARGV[1]  schema
-- ARGV[2]  name of the worker
-- ARGV[3]  its lease in µs
-- ARGV[4]  "1" if the worker has had a lease before: then it is not given a new one. If it was lost, the worker
--          asks for one with its next beat; if it has left, this beat comes late
-- ARGV[5]  how many µs after the last beat of all nobody has reached Redis
-- ARGV[6]  "places", and ARGV[7] how many; then the other fields of the worker's record
--
-- Returns {now, 1 if the lease was renewed or given, 0 if it is lost; number of its claims;
-- until when the leader's lease holds; the leader's token; version of the policies; until
-- when somebody listens to what happens}.

local call = redis.call
local meta = call('HMGET', KEYS[1], 'schema', 'beat', 'amnesty', 'till', 'leader', 'policies', 'listened')
if (meta[1] or ARGV[1]) ~= ARGV[1] then
  return redis.error_reply('SCHEMA ' .. meta[1])
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local lease = tonumber(ARGV[3])
local int = function(n) return string.format('%d', n) end

for i, want in ipairs({ 'zset', 'hash', 'hash', 'stream' }) do
  expect(KEYS[1 + i], want)
end
-- A full Redis refuses commands that need memory, unless the script has begun with one that writes and needs none.
-- So this one removes nothing from the set: leases have to be renewed in a full Redis, too.
call('ZREM', KEYS[2], '')
-- After a time in which nobody reached Redis, nobody could renew a lease: all hold for one
-- more.
if now - tonumber(meta[2] or now) > tonumber(ARGV[5]) then
  call('HSET', KEYS[1], 'amnesty', int(now + lease))
end
call('HSET', KEYS[1], 'schema', ARGV[1], 'beat', int(now))
local held = call('HLEN', KEYS[4])
local known = call('ZSCORE', KEYS[2], ARGV[2])
-- A worker that is not in the set was reaped, or has left. It gets no lease, unless it asks for its first, or for a new
-- one after it was told so; or claims of it are there, which nobody would reap.
local alive = (known or ARGV[4] ~= '1' or held > 0) and 1 or 0
local reply = { now, alive, held, tonumber(meta[4] or 0), meta[5] or '', tonumber(meta[6] or 0), tonumber(meta[7] or 0) }
if alive == 0 then
  return reply
end
call('ZADD', KEYS[2], int(now + lease), ARGV[2])
local places = call('HGET', KEYS[3], 'places')
call('HSET', KEYS[3], unpack(ARGV, 6))
call('PEXPIRE', KEYS[3], '86400000')
if not known then
  call('XADD', KEYS[5], '*', '!workers', ARGV[2])
elseif places and places ~= ARGV[7] then
  call('XADD', KEYS[5], '*', '!places', ARGV[2] .. ' ' .. ARGV[7])
end
return reply
