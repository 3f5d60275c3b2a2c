-- attend says that a worker of a divided queue lives, which others do, and how many workers each
-- partition wants.
--
-- KEYS[1]  workers, of the whole queue
-- KEYS[2]  wanted
-- KEYS[3]  the worker's record
-- KEYS[4]  how many places each worker has
-- ARGV[1]  name of the worker
-- ARGV[2]  its lease in us
-- ARGV[3]  for how long a wish of a partition holds, in us
-- ARGV[4]  how many workers each partition has at least
-- ARGV[5]  number of wishes; then the number of a partition and how many workers it wants, for each
-- then how many places the worker has, and the fields of the worker's record
--
-- Returns {now, names of the workers that live, number of each partition with a wish and how many
-- workers it wants, how many places all workers have}. A wish that nobody repeats is halved, until the least is enough.

local LONGEST, MOST = 60000000, 1000000 -- of a lease, in us; of a wish
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local int = function(n) return string.format('%d', n) end

for i, want in ipairs({ 'zset', 'hash', 'hash', 'hash' }) do
  expect(KEYS[i], want)
end
-- A full Redis refuses commands that need memory, unless the script has begun with one that writes and needs none.
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))
-- Leases that end later than any would were given before the clock was set back. Who lives renews its own.
call('ZREMRANGEBYSCORE', KEYS[1], int(now + LONGEST), '+inf')
call('ZADD', KEYS[1], int(now + ARGV[2]), ARGV[1])
local holds, least, wishes = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
for i = 6, 5 + 2 * wishes, 2 do
  call('HSET', KEYS[2], ARGV[i], ARGV[i + 1] .. ' ' .. int(now + holds))
end
call('HSET', KEYS[4], ARGV[1], ARGV[6 + 2 * wishes])
call('PEXPIRE', KEYS[4], '86400000')
call('HSET', KEYS[3], unpack(ARGV, 7 + 2 * wishes))
call('PEXPIRE', KEYS[3], '86400000')
local wanted, all = {}, call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  local n, till = string.match(all[i + 1], '^(%d+) (%d+)$')
  n, till = math.min(tonumber(n or 0), MOST), tonumber(till or 0)
  if till <= now or till > now + holds then
    n = math.floor(n / 2)
    call('HSET', KEYS[2], all[i], n .. ' ' .. int(now + holds))
  end
  if n <= least then
    call('HDEL', KEYS[2], all[i])
  else
    wanted[#wanted + 1], wanted[#wanted + 2] = all[i], int(n)
  end
end
local names, lives, places = call('ZRANGE', KEYS[1], 0, -1), {}, 0
for i = 1, #names do
  lives[names[i]] = true
end
local sizes = call('HGETALL', KEYS[4])
for i = 1, #sizes, 2 do
  if lives[sizes[i]] then
    places = places + (tonumber(sizes[i + 1]) or 0)
  else
    call('HDEL', KEYS[4], sizes[i])
  end
end
return { now, names, wanted, places }
