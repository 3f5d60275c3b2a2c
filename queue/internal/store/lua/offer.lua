-- offer puts jobs at the ends of their lanes and says what became of each. It decides only what
-- the door decides: capacity, repeated IDs, collapse keys.
--
-- KEYS[1]  meta
-- KEYS[2]  mail
-- KEYS[3]  tenants
-- KEYS[4]  later
-- KEYS[5]  refused
-- KEYS[6]  drops
-- KEYS[7]  batch
-- KEYS[8]  paused
-- KEYS[9]  a key that the first schema has
-- KEYS[10] offers; others are named in ARGV by their number; the last ones, from ARGV[4] on, are
--          states
-- ARGV[1]  schema
-- ARGV[2]  version of the policies that the client knows
-- ARGV[3]  ms for which the batch is remembered
-- ARGV[4]  number of the first state among KEYS
-- ARGV[5]  number of tenants; then for each four: escaped name, key of its counters, capacity
--          (0 for none), 1 if the leader makes room for what is too much
-- then for each job 15: number of its tenant, escaped user, lane's name, key of the lane, key of
--          its index, job without its stamp, not before in µs (0 for none), key of its ID (0 for
--          none), ms for which that is known, key of the fold (0 for none), collapse key, key
--          of a payload kept apart (0 for none), that payload, reason to refuse it ("" for
--          none), rule that refuses it
--
-- Returns {now, receipts, pauses, "" and the states, replaced jobs}. A line of receipts is "stamp status
-- place waiting reason rule": status is a (accepted), l (accepted for later), r (replaced a
-- job), d (duplicate) or x (refused); waiting is the tenant's backlog before it. A job is refused
-- as "broken" if a key that it needs holds something else; the others do not notice.

local call, format = redis.call, string.format
local JOB, TENANT = 15, 4
local HEAD = 2048 -- of a dropped job, what is kept of it

local function int(n)
  return format('%d', n)
end

local function key(i)
  return KEYS[tonumber(ARGV[i])]
end

local meta = call('HMGET', KEYS[1], 'schema', 'policies', 'till', 'stamp', 'paused', 'in', 'other', 'out', 'recorded')
local schema = meta[1] or (call('EXISTS', KEYS[9]) == 1 and '1' or ARGV[1])
if schema ~= ARGV[1] then
  return redis.error_reply('SCHEMA ' .. schema)
elseif (meta[2] or '0') ~= ARGV[2] then
  return redis.error_reply('STALE ' .. (meta[2] or '0'))
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local known = call('MGET', KEYS[7], unpack(KEYS, tonumber(ARGV[4])))

local function answer(receipts, replaced)
  local pauses = {}
  if (meta[5] or '0') ~= '0' then
    pauses = call('ZRANGE', KEYS[8], '0', '-1', 'WITHSCORES')
  end
  known[1] = ''
  return { now, receipts, pauses, known, replaced }
end
if known[1] then
  return answer(known[1], {})
end

local alive = tonumber(meta[3] or 0) > now
local recorded = tonumber(meta[9] or 0) > now and {} or nil -- while somebody records what is offered
local stamp = math.max(now, tonumber(meta[4] or 0))
local tenants, mail, lines, replaced, later = {}, {}, {}, {}, {}
local total = { ['in'] = 0, other = 0, out = 0 }

-- counts returns a tenant's counters, or nothing if nobody can count with them.
local function counts(counters)
  local fine, n = pcall(call, 'HMGET', counters, 'in', 'back', 'started', 'dropped', 'other', 'out')
  for i = 1, 6 do
    if not fine or n[i] and not (string.find(n[i], '^-?%d+$') and #n[i] < 17) then
      return nil
    end
  end
  return n
end

local at = 6
for t = 1, tonumber(ARGV[5]) do
  local known_counts = counts(key(at + 1))
  local n = known_counts or {}
  tenants[t] = { broken = not known_counts,
    name = ARGV[at], counters = key(at + 1), capacity = tonumber(ARGV[at + 2]), makes_room = ARGV[at + 3] == '1',
    waiting = (n[1] or 0) + (n[2] or 0) - (n[3] or 0) - (n[4] or 0), ['in'] = 0, other = 0, out = 0,
  }
  at = at + TENANT
end

local function count(tenant, field)
  tenant[field], total[field] = tenant[field] + 1, total[field] + 1
end

-- collapse keeps a job under its collapse key. It returns the job that was there. What can fail
-- comes first.
local function collapse(i, job)
  local other = call('HGET', key(i + 9), ARGV[i + 10])
  if other then
    call('ZADD', key(i + 4), 'XX', 'LT', int(now), ARGV[i + 1]) -- it may cost less
  end
  call('HSET', key(i + 9), ARGV[i + 10], job)
  return other
end

-- enter puts a job into its lane and returns what became of it, and its place.
local function enter(tenant, i, job)
  local entry = job
  if ARGV[i + 9] ~= '0' then
    local other = collapse(i, job)
    if other then
      call('XADD', KEYS[6], 'MAXLEN', '~', '100000', '*', 'lane', ARGV[i + 2], 'reason', 'collapsed', 'rule', '',
        'at', int(now), 'job', string.sub(other, 1, HEAD))
      count(tenant, 'other')
      count(tenant, 'out')
      replaced[#replaced + 1] = string.sub(other, 1, HEAD)
      if alive then
        mail[#mail + 1], mail[#mail + 2] = '!fold ' .. #mail, ARGV[i + 2]
      end
      return 'r', 0
    end
    entry = '=' .. ARGV[i + 10]
  end
  local place = call('RPUSH', key(i + 3), entry)
  if place == 1 then
    call('ZADD', key(i + 4), int(now), ARGV[i + 1])
  end
  tenant.waiting = tenant.waiting + 1
  count(tenant, 'in')
  if place == 1 then
    tenant.due = true
    if alive then
      mail[#mail + 1], mail[#mail + 2] = ARGV[i + 2], entry
    end
  end
  return 'a', place
end

-- full tells whether a job finds no room. Where the oldest is to make room, the leader sees to
-- that; the backlog is bounded without a leader too.
local function full(tenant, i)
  local most = tenant.makes_room and 2 * tenant.capacity + 1000 or tenant.capacity
  if tenant.capacity == 0 or tenant.waiting < most or ARGV[i + 6] ~= '0' then
    return false
  end
  return ARGV[i + 9] == '0' or call('HEXISTS', key(i + 9), ARGV[i + 10]) == 0
end

-- offer returns what became of a job, its place, and why it was refused.
local function offer(tenant, i, job)
  if tenant.broken then
    return 'x', 0, 'broken'
  elseif ARGV[i + 13] ~= '' then
    return 'x', 0, ARGV[i + 13]
  elseif full(tenant, i) then
    return 'x', 0, 'full'
  end
  if ARGV[i + 11] ~= '0' then
    call('SET', key(i + 11), ARGV[i + 12])
  end
  if ARGV[i + 6] == '0' then
    return enter(tenant, i, job)
  end
  call('ZADD', KEYS[4], ARGV[i + 6], ARGV[i + 2] .. ' ' .. job)
  count(tenant, 'other')
  later[1] = math.min(later[1] or math.huge, tonumber(ARGV[i + 6]))
  return 'l', 0
end

-- undo takes back what was done of an offer that failed.
local function undo(i, job)
  local entry, fold = job, ARGV[i + 9] ~= '0'
  if fold then
    local fine, there = pcall(call, 'HGET', key(i + 9), ARGV[i + 10])
    if not fine or there ~= job then
      return
    end
    call('HDEL', key(i + 9), ARGV[i + 10])
    entry = '=' .. ARGV[i + 10]
  end
  pcall(call, 'LREM', key(i + 3), '-1', entry)
end

for i = at, #ARGV, JOB do
  local tenant, name = tenants[tonumber(ARGV[i])], format('%013x', stamp)
  local status, place, waiting, reason = 'd', 0, tenant.waiting, nil
  local own = ARGV[i + 7] ~= '0'
  if not own or call('SET', key(i + 7), ARGV[i + 2], 'NX', 'PX', ARGV[i + 8]) then
    local fine
    fine, status, place, reason = pcall(offer, tenant, i, name .. ARGV[i + 5])
    if not fine and not string.find(type(status) == 'table' and status.err or tostring(status), 'WRONGTYPE', 1, true) then
      error(status) -- Redis is full, or a replica: nothing was done
    elseif not fine then
      undo(i, name .. ARGV[i + 5])
      status, place, reason = 'x', 0, 'broken'
    end
    if status == 'x' then
      if own then
        call('DEL', key(i + 7)) -- what was refused may come again
      end
      if reason == 'broken' and ARGV[i + 11] ~= '0' then
        call('DEL', key(i + 11))
      end
      count(tenant, 'other')
      count(tenant, 'out')
      call('XADD', KEYS[5], 'MAXLEN', '~', '10000', '*', 'lane', ARGV[i + 2], 'reason', reason, 'rule', ARGV[i + 14],
        'at', int(now), 'job', name .. string.sub(ARGV[i + 5], 1, HEAD))
    end
  end
  if recorded and status ~= 'd' then
    recorded[#recorded + 1], recorded[#recorded + 2] = int(#recorded), ARGV[i + 2] .. ' ' .. name .. string.sub(ARGV[i + 5], 1, HEAD)
  end
  stamp = stamp + 1
  lines[#lines + 1] = name .. ' ' .. status .. ' ' .. place .. ' ' .. waiting .. ' ' .. (reason or '-') .. ' ' .. ARGV[i + 14]
end

local due = {}
for _, tenant in ipairs(tenants) do
  for _, field in ipairs({ 'in', 'other', 'out' }) do
    if tenant[field] > 0 and not tenant.broken then
      call('HINCRBY', tenant.counters, field, tenant[field])
    end
  end
  if tenant.due then
    due[#due + 1], due[#due + 2] = int(now), tenant.name
  end
  if tenant.capacity > 0 and tenant.waiting > tenant.capacity then
    mail[#mail + 1], mail[#mail + 2] = '!full ' .. #mail, tenant.name
  end
end
if #due > 0 and call('ZADD', KEYS[3], 'NX', unpack(due)) > 0 then
  for _, tenant in ipairs(tenants) do
    call('PERSIST', tenant.counters) -- those of a tenant with nothing to do expire
  end
end
if later[1] then
  mail[#mail + 1], mail[#mail + 2] = '!later', int(later[1])
end
if alive and #mail > 0 then
  call('XADD', KEYS[2], '*', unpack(mail))
end
call('HSET', KEYS[1], 'schema', ARGV[1], 'stamp', int(stamp), 'in', (meta[6] or 0) + total['in'],
  'other', (meta[7] or 0) + total.other, 'out', (meta[8] or 0) + total.out)
if recorded and #recorded > 0 then
  call('XADD', KEYS[10], 'MAXLEN', '~', '10000', '*', 'at', int(now), 'offered', int((meta[6] or 0) + total['in'] + (meta[7] or 0) + total.other),
    unpack(recorded))
end
local receipts = table.concat(lines, '\n')
call('SET', KEYS[7], receipts, 'PX', ARGV[3])
return answer(receipts, replaced)
