-- lease hands out places of concurrency limits that count jobs of several partitions: each partition may run so many at
-- once, and all together no more than a limit lets run.
--
-- KEYS[1]  how many places of each limit are leased, of the whole queue
-- KEYS[2]  how many of them the partition has
-- KEYS     then for each limit who waits for places
-- ARGV[1]  number of the partition
-- ARGV[2]  number of the leader's token
-- ARGV[3]  number of this telling: more than that of the last under the token
-- ARGV[4]  1 if it replaces all that the partition has told before, or 0
-- ARGV[5]  for how long a partition is believed to wait, in us
-- ARGV     then for each limit its scope, how many jobs it lets run, how many places the partition keeps, how many more it
--          wants, and how much it weighs
--
-- Returns {now, 0, for each limit: how many places the partition has, how many of them it should use, since others have
-- waited longer, and the numbers of the partitions that are to tell anew: they may have places now, or have too many}. The second is 1, and nothing is done, if
-- somebody else has led since or a later telling came before this one.
--
-- Free places go to whoever has least of those that wait, by weight; of several to who has waited longest.

local LONGEST = 60000000 -- for which anybody is believed to wait, in us
local call, match, floor, min, max = redis.call, string.match, math.floor, math.min, math.max
local int = function(n) return string.format('%d', n) end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local me, epoch, number, patience = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])

for i = 1, #KEYS do
  expect(KEYS[i], 'hash')
end
local last = call('HMGET', KEYS[2], '%epoch', '%number')
local before = tonumber(last[1] or 0) or 0
if before > epoch or before == epoch and (tonumber(last[2] or 0) or 0) >= number then
  return { now, 1 }
end

local function read(key, field) return tonumber(call('HGET', key, field) or 0) end

-- The sums begin anew when they are lost, or one of them cannot be read: what a partition had is not in them then, until it tells anew.
for k = 3, #KEYS do
  local scope = ARGV[6 + 5 * (k - 3)]
  if not read(KEYS[1], scope) or not read(KEYS[2], scope) then
    call('DEL', KEYS[1])
  end
end
if call('HSETNX', KEYS[1], '%made', int(now)) == 1 or call('HGET', KEYS[1], '%made') ~= call('HGET', KEYS[2], '%made') then
  call('DEL', KEYS[2])
end

-- set notes how many places there are of a limit.
local function set(key, scope, n)
  if n > 0 then
    call('HSET', key, scope, int(n))
  else
    call('HDEL', key, scope)
  end
end

call('HSET', KEYS[2], '%epoch', ARGV[2], '%number', ARGV[3], '%made', call('HGET', KEYS[1], '%made'))
if ARGV[4] == '1' then
  local all = call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) ~= '%' then
      set(KEYS[1], all[i], (read(KEYS[1], all[i]) or 0) - (tonumber(all[i + 1]) or 0))
      call('HDEL', KEYS[2], all[i])
    end
  end
end

-- waiting returns the partitions that wait: what each has and wants, its weight, and since when it waits.
local function waiting(key)
  local all, mine, others = call('HGETALL', key), nil, {}
  for i = 1, #all, 2 do
    local has, wants, weight, since, till = match(all[i + 1], '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
    local one = { name = all[i], has = tonumber(has or 0), wants = tonumber(wants or 0), weight = max(1, tonumber(weight or 1)), since = tonumber(since or 0) }
    till = tonumber(till or 0)
    if all[i] == me then
      mine = one
    elseif till < now or till > now + LONGEST then
      call('HDEL', key, all[i])
    else
      others[#others + 1] = one
    end
  end
  return mine, others
end

-- next_of returns who gets the next place: nobody, if none wants one.
local function next_of(all)
  local best
  for i = 1, #all do
    local one = all[i]
    if one.wants > 0 then
      local a, b = one.has * (best and best.weight or 1), best and best.has * one.weight
      if not best or a < b or a == b and one.since < best.since then
        best = one
      end
    end
  end
  return best
end

-- total_of returns the weights of those who wait.
local function total_of(mine, others)
  local weights = mine.weight
  for i = 1, #others do
    weights = weights + others[i].weight
  end
  return weights
end

-- fair returns how many places of its own the partition should use, since others that wait have less than they could.
local function fair(mine, others, pool)
  local weights, starving, has = total_of(mine, others), false, mine.has
  local share = pool * mine.weight / weights
  for i = 1, #others do
    local one = others[i]
    if one.wants > 0 and (one.has == 0 and one.since < mine.since or one.has + 1 <= pool * one.weight / weights) then
      starving = true
    end
  end
  if not starving or has <= share then
    return has
  end
  return share < 1 and 0 or min(has, floor(share) + 1)
end

local replies = { now, 0 }
for k = 3, #KEYS do
  local at = 6 + 5 * (k - 3)
  local scope, most, keeps, wants, weight = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local total = max(0, read(KEYS[1], scope) - read(KEYS[2], scope)) + keeps
  local waited, others = waiting(KEYS[k])
  local mine = { name = me, has = keeps, wants = wants, weight = weight, since = waited and waited.since or now }
  local free, rings = max(0, most - total), {}
  local all = { mine }
  for i = 1, #others do
    all[i + 1] = others[i]
  end
  while free > 0 do
    local one = next_of(all)
    if not one then
      break
    end
    if #others == 0 then -- all at once
      local n = min(free, one.wants)
      one.has, one.wants, free = one.has + n, one.wants - n, free - n
    else
      one.has, one.wants, free = one.has + 1, one.wants - 1, free - 1
    end
    if one ~= mine and not rings[one.name] then
      rings[one.name], rings[#rings + 1] = true, one.name
    end
  end
  local uses = mine.has
  if total > most then
    uses = max(0, keeps - (total - most))
  elseif #others > 0 then
    local pool = most - total + keeps
    for i = 1, #others do
      pool = pool + others[i].has
    end
    pool = min(most, pool)
    uses = fair(mine, others, pool)
    if not waited and mine.wants > 0 then -- those who have too many learn of who has come
      local weights = total_of(mine, others)
      for i = 1, #others do
        local one = others[i]
        if one.has > pool * one.weight / weights and not rings[one.name] then
          rings[one.name], rings[#rings + 1] = true, one.name
        end
      end
    end
  end
  set(KEYS[1], scope, total + mine.has - keeps)
  set(KEYS[2], scope, mine.has)
  if mine.wants > 0 or uses < mine.has then
    if mine.has > keeps then
      mine.since = now
    end
    call('HSET', KEYS[k], me, int(mine.has) .. ' ' .. int(mine.wants) .. ' ' .. int(weight) .. ' ' .. int(mine.since) .. ' ' .. int(now + patience))
    call('PEXPIRE', KEYS[k], '60000')
  else
    call('HDEL', KEYS[k], me)
  end
  local names = {}
  for i = 1, #rings do
    names[i] = tonumber(rings[i]) or -1
  end
  replies[#replies + 1] = { mine.has, uses, names }
end
return replies
