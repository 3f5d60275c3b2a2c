-- offer puts jobs at the ends of their lanes and says what became of each. It decides only what
-- the door decides: capacity, repeated IDs, collapse keys.
--
-- KEYS[1]  meta
-- KEYS[2]  notices
-- KEYS[3]  tenants
-- KEYS[4]  later
-- KEYS[5]  refused
-- KEYS[6]  drops
-- KEYS[7]  batch
-- KEYS[8]  paused
-- KEYS[9]  offers
-- KEYS[10] backlogs; then the counters of each tenant, the indexes, the lane of each job, the lanes of
--          subjects and the keys of options, which are named in ARGV by their number, and states
-- ARGV[1]  schema
-- ARGV[2]  version of the policies that the client knows
-- ARGV[3]  ms for which the batch is remembered
-- ARGV[4]  ms for which the ID of a job is known, if no option says otherwise
-- ARGV[5]  number of the first state among KEYS
-- ARGV[6]  number of tenants
-- ARGV[7]  number of indexes
-- ARGV[8]  number of jobs
-- ARGV[9]  number of subjects: users, or limits by name, whose backlogs have a capacity
-- ARGV[10] number of the partition, from 0
-- ARGV[11] number of partitions: stamps differ by it, so that no two partitions give the same
-- then for each tenant 3: escaped name, capacity, length of the backlog at which jobs are refused
-- then for each index 2: number of its tenant, rank of its lanes
-- then for each job 2: number of its index, job without its stamp
-- then for each subject 4: scope, capacity, what a job is told that finds no room, number of the first
--          of its user's three lanes without labels, or 0
-- then for each option 3: number of the job, name, value. The options are
--   counted   numbers of the subjects that count it
--   after     not before in µs
--   id        key of its ID
--   known     ms for which that is known
--   fold      key of the fold
--   collapse  collapse key, as stubs name it
--   digest    key of the open digest that it joins; then fold is where that goes when it is full
--   place     lane and digest key, for the stub
--   costs     what it costs, as the record of a digest says it
--   max       members of a full digest
--   wait      µs from its first member until a digest is due
--   idle      µs from its last one
--   due       when it is due, in µs, for one that begins
--   spilled   key of a payload kept apart
--   payload   that payload
--   refuse    reason to refuse it
--   rule      rule that refuses it
--
-- Returns {now, receipts, pauses of the jobs' scopes, "" and the states, replaced jobs}. Receipts are lines: the stamp of
-- the first job, from which the others count on by the number of partitions; for each tenant its backlog before; for each job its
-- place if it is accepted, otherwise l (accepted for later), r (replaced a job), d (duplicate),
-- "w stamp due" (waits in the digest of that stamp, which is due then) or "x reason rule" (refused).
-- A job is refused as "broken" if a key that it needs holds something else; the others do not notice.

local call, format, sub = redis.call, string.format, string.sub
local HEAD = 2048 -- of a dropped job, what is kept of it
local function int(n) return format('%d', n) end
local function key(number) return KEYS[tonumber(number)] end

local meta = call('HMGET', KEYS[1], 'schema', 'policies', 'till', 'stamp', 'paused', 'in', 'other', 'out', 'recorded')
if (meta[1] or ARGV[1]) ~= ARGV[1] then
  return redis.error_reply('SCHEMA ' .. meta[1])
elseif (meta[2] or '0') ~= ARGV[2] then
  return redis.error_reply('STALE ' .. (meta[2] or '0'))
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local instant = int(now)

for i, want in pairs({ [2] = 'stream', [3] = 'zset', [5] = 'stream', [8] = 'zset' }) do
  expect(KEYS[i], want)
end
local pauses, replaced = {}, {}
if (meta[5] or '0') ~= '0' then -- somebody is paused: one of these, perhaps
  local scopes, seen, lanes = { 'q' }, {}, 10 + ARGV[6] + ARGV[7]
  for n = lanes + 1, lanes + ARGV[8] do
    local tenant, user = string.match(sub(KEYS[n], #KEYS[1] + 2), '^([^:]*):([^:|]*)')
    for _, scope in ipairs({ 't:' .. tenant, 'u:' .. tenant .. ':' .. user }) do
      if not seen[scope] then
        scopes[#scopes + 1], seen[scope] = scope, true
      end
    end
  end
  for from = 1, #scopes, 1000 do
    for i, score in ipairs(call('ZMSCORE', KEYS[8], unpack(scopes, from, math.min(from + 999, #scopes)))) do
      if score then
        pauses[#pauses + 1], pauses[#pauses + 2] = scopes[from + i - 1], score
      end
    end
  end
end
local states = call('MGET', KEYS[7], unpack(KEYS, tonumber(ARGV[5])))
local before = states[1]
states[1] = ''
if before then
  return { now, before, pauses, states, replaced }
end

local partitions = tonumber(ARGV[11])
local stamp = math.max(now, tonumber(meta[4] or 0))
stamp = stamp + (ARGV[10] - stamp) % partitions
local recorded = tonumber(meta[9] or 0) > now and not kind(KEYS[9], 'stream') and {} or nil -- while somebody records what is offered
local till = tonumber(meta[3] or 0) > now and meta[3] or '0' -- of the leader's lease
local notices = {}
-- The earliest instant at which one of the jobs matures. It is in a table: in the embedded Redis functions no longer
-- share a variable after an error that was caught.
local later = { math.huge }
local function tell(subject, text)
  if till ~= '0' then
    notices[#notices + 1], notices[#notices + 2] = subject, text
  end
end

-- backlog returns how many jobs of a tenant wait, or nothing if nobody can count with its counters.
local function backlog(counters)
  local fine, n = pcall(call, 'HMGET', counters, 'in', 'back', 'started', 'dropped', 'other', 'out')
  for i = 1, 6 do
    if not fine or n[i] and not (string.find(n[i], '^-?%d+$') and #n[i] < 17) then
      return nil
    end
  end
  return (n[1] or 0) + (n[2] or 0) - (n[3] or 0) - (n[4] or 0)
end

local at, used = 12, 10 -- where ARGV is read, and how many KEYS were
local receipts, tenants, indexes, options = { format('%013x', stamp) }, {}, {}, {}
for t = 1, tonumber(ARGV[6]) do
  local counters = KEYS[used + t]
  local waiting = backlog(counters)
  tenants[t] = {
    counters = counters, broken = not waiting, waiting = waiting or 0, ['in'] = 0, other = 0, out = 0,
    name = ARGV[at], capacity = tonumber(ARGV[at + 1]), most = tonumber(ARGV[at + 2]),
  }
  receipts[1 + t] = tenants[t].waiting
  at = at + 3
end
used = used + #tenants
for i = 1, tonumber(ARGV[7]) do
  local tenant, index = tenants[tonumber(ARGV[at])], KEYS[used + i]
  local head = #KEYS[1] + #tenant.name
  indexes[tostring(i)] = {
    key = index, tenant = tenant, rank = ':' .. ARGV[at + 1],
    from = head + 3, to = head - #index - 1, -- in the key of a lane, <prefix>lane:<tenant>:<member><suffix>, the member
  }
  at = at + 2
end
used = used + tonumber(ARGV[7])
-- How many jobs count for a subject: those in the lanes of a user that have no label, and those that backlogs says.
local subjects, scopes = {}, {}
local from = at + 2 * tonumber(ARGV[8]) -- behind the jobs
for i = 1, tonumber(ARGV[9]) do
  local first, waiting = tonumber(ARGV[from + 3]), 0
  for n = first, first > 0 and first + 2 or -1 do
    local fine, length = pcall(call, 'LLEN', KEYS[n])
    waiting = waiting + (fine and length or 0)
  end
  subjects[tostring(i)] = { waiting = waiting, labelled = 0, capacity = tonumber(ARGV[from + 1]), rule = ARGV[from + 2] }
  scopes[i] = ARGV[from]
  from = from + 4
end
if scopes[1] then
  expect(KEYS[10], 'zset')
end
for first = 1, #scopes, 1000 do
  for i, score in ipairs(call('ZMSCORE', KEYS[10], unpack(scopes, first, math.min(first + 999, #scopes)))) do
    local subject = subjects[tostring(first + i - 1)]
    subject.waiting = subject.waiting + (score or 0)
  end
end
for i = from, #ARGV, 3 do
  local n = tonumber(ARGV[i])
  options[n] = options[n] or {}
  options[n][ARGV[i + 1]] = ARGV[i + 2]
end

local function count(tenant, field) tenant[field] = tenant[field] + 1 end
local function member(job) return sub(job.lane, job.index.from, job.index.to) end
local function lane_name(job) return job.tenant.name .. ':' .. member(job) .. job.index.rank end

-- leave notes why a job does not wait, or not any more.
local reasons = {}
local function leave(job, stream, length, reason, text)
  call('XADD', stream, 'MAXLEN', '~', length, '*', 'lane', lane_name(job), 'reason', reason,
    'rule', job.rule, 'at', instant, 'job', sub(text, 1, HEAD))
  count(job.tenant, 'other')
  count(job.tenant, 'out')
  reasons[reason] = (reasons[reason] or 0) + 1
end

-- refuse returns the receipt of a job that is refused.
local function refuse(job, reason)
  if job.options.id then
    call('DEL', key(job.options.id)) -- what was refused may come again
  end
  leave(job, KEYS[5], '10000', reason, job.text)
  return 'x ' .. reason .. ' ' .. job.rule
end

-- replace puts a job in the place of another one that waits under its collapse key. If that one has come back, its slot, the
-- option behind its stamp, is what keeps the place at the front of the lane (commit.lua): the job gets it.
local SLOT = string.char(26, 13)
local function replace(job, fold, other)
  local slot = sub(other, 14, 15) == SLOT and sub(other, 14, 28) or ''
  call('ZADD', job.index.key, 'XX', 'LT', instant, member(job)) -- it may cost less
  leave(job, KEYS[6], '100000', 'collapsed', other)
  call('HSET', fold, job.options.collapse, sub(job.text, 1, 13) .. slot .. sub(job.text, 14))
  replaced[#replaced + 1] = sub(other, 1, HEAD)
  tell('!fold ' .. #notices, lane_name(job))
end

-- line puts an entry at the end of a job's lane and returns its place. Where it fails nothing is done.
local function line(job, entry)
  local tenant = job.tenant
  local place = call('RPUSH', job.lane, entry)
  if place == 1 then
    local fine, why = pcall(call, 'ZADD', job.index.key, instant, member(job))
    if not fine then
      call('DEL', job.lane)
      error(why)
    end
    tenant.due = true
    tell(lane_name(job), entry)
  end
  tenant.waiting = tenant.waiting + 1
  count(tenant, 'in')
  for _, subject in ipairs(job.counted) do
    subject.waiting = subject.waiting + 1
    if string.find(member(job), '|', 1, true) then -- the lane has a label
      subject.labelled = subject.labelled + 1
    end
  end
  return place
end

-- enter puts a job into its lane and returns its receipt. Where it fails nothing is done.
local function enter(job)
  local name = job.options.collapse
  local fold = name and key(job.options.fold)
  if not fold then
    return line(job, job.text)
  end
  local other = call('HGET', fold, name)
  if other then
    replace(job, fold, other)
    return 'r'
  end
  local place = line(job, '=' .. name)
  call('HSET', fold, name, job.text)
  return place
end

-- schedule puts an entry into later, and lets the leader look there at that instant.
local function schedule(job, entry, at)
  call('ZADD', KEYS[4], at, lane_name(job) .. ' ' .. entry)
  later[1] = math.min(later[1], tonumber(at))
end

-- due returns when a digest is due by its policy: idle µs from now on, and no later than wait µs after it began; 0 for at once.
local function due(asks, began)
  local latest = asks.wait and began + asks.wait or math.huge
  local at = asks.due and tonumber(asks.due) or math.min(asks.idle and now + asks.idle or latest, latest)
  return at > now and at < math.huge and at or 0
end

-- begin starts the digest of a job, in its lane or in later, and returns its record and a receipt.
local function begin(job, digest, field)
  local stamp, at = sub(job.text, 1, 13), due(job.options, now)
  local record = stamp .. ' 0 ' .. int(at) .. ' ' .. job.options.costs
  local stub = '=\0' .. stamp .. job.options.place
  call('HSET', digest, '', record, field, job.text)
  if at == 0 then
    local fine, place = pcall(line, job, stub)
    if not fine then
      call('DEL', digest)
      error(place)
    end
    return record, place
  end
  schedule(job, stub, int(at))
  count(job.tenant, 'other')
  return record, 'w ' .. stamp .. ' ' .. int(at)
end

-- join adds a job to an open digest, and returns its record and a receipt. The leader is told if the costs are others.
local function join(job, digest, field, record)
  local stamp, changes, at, costs = string.match(record, '^(%x+) (%d+) (%d+) (.*)$')
  local other = job.options.collapse and call('HGET', digest, field)
  local stub = '=\0' .. stamp .. job.options.place
  if costs ~= job.options.costs then
    call('ZADD', job.index.key, 'XX', 'LT', instant, member(job))
    tell('!fold ' .. #notices, lane_name(job))
    changes = int(changes + 1)
  end
  if at ~= '0' and tonumber(at) > now and job.options.idle and call('ZSCORE', KEYS[4], lane_name(job) .. ' ' .. stub) then -- it is neither due nor in its lane
    at = int(math.max(due(job.options, tonumber(stamp, 16)), now))
    schedule(job, stub, at)
  end
  record = stamp .. ' ' .. changes .. ' ' .. at .. ' ' .. job.options.costs
  call('HSET', digest, '', record, field, job.text)
  if other then
    leave(job, KEYS[6], '100000', 'collapsed', other)
    replaced[#replaced + 1] = sub(other, 1, HEAD)
  else
    count(job.tenant, 'other')
  end
  return record, 'w ' .. stamp .. ' ' .. at
end

-- close puts the envelope of an open digest where its stub finds it, and lets it be due at once.
local function close(job, digest, record)
  local name = '\0' .. sub(record, 1, 13) .. job.options.place
  call('HSET', key(job.options.fold), name, (compose(call('HGETALL', digest), now)))
  call('DEL', digest)
  if call('ZADD', KEYS[4], 'XX', 'LT', 'CH', instant, lane_name(job) .. ' =' .. name) == 1 then
    later[1] = math.min(later[1], now)
  end
end

-- gather makes a job a member of the open digest of its key, and returns its receipt. One that is full is closed.
local function gather(job)
  local asks, receipt = job.options, nil
  local digest, max, field = key(asks.digest), tonumber(asks.max), asks.collapse and '=' .. asks.collapse or sub(job.text, 1, 13)
  local record, members = call('HGET', digest, ''), call('HLEN', digest) - 1
  if members + 1 >= max then
    call('HEXISTS', key(asks.fold), '') -- fails for a key of another type, before anything is written
  end
  if record and members >= max then -- more were allowed before
    close(job, digest, record)
    record = nil
  end
  if record then
    record, receipt = join(job, digest, field, record)
  else
    record, receipt = begin(job, digest, field)
  end
  if call('HLEN', digest) > max then
    close(job, digest, record)
  end
  return receipt
end

local none = {}
-- counted returns the subjects that count a job, of their numbers.
local function counted(numbers)
  if not numbers then
    return none
  end
  local by = {}
  for number in string.gmatch(numbers, '%d+') do
    by[#by + 1] = subjects[number]
  end
  return by
end

-- crowded returns what a job is told if one of its subjects has no room.
local function crowded(job)
  for _, subject in ipairs(job.counted) do
    if subject.waiting >= subject.capacity then
      return subject.rule
    end
  end
end

-- full tells whether a job finds no room, and notes whose capacity that is, if it is not the tenant's.
local function full(job)
  local most = job.tenant.waiting >= job.tenant.most
  local rule = not most and crowded(job)
  if not (most or rule) or job.options.after then
    return false
  end
  local digest = job.options.digest
  if digest and (due(job.options, now) > 0 or call('HEXISTS', key(digest), '') == 1) then
    return false
  end
  if job.options.fold and not digest and call('HEXISTS', key(job.options.fold), job.options.collapse) == 1 then
    return false
  end
  job.rule = rule or ''
  return true
end

-- offer returns the receipt of a job.
local function offer(job)
  local tenant, asks, receipt = job.tenant, job.options, 'l'
  if asks.id and not call('SET', key(asks.id), lane_name(job), 'NX', 'PX', asks.known or ARGV[4]) then
    return 'd'
  end
  local reason = tenant.broken and 'broken' or asks.refuse or full(job) and 'full'
  if reason then
    return refuse(job, reason)
  elseif asks.digest then
    receipt = gather(job)
  elseif not asks.after then
    receipt = enter(job)
  else
    schedule(job, job.text, asks.after)
    count(tenant, 'other')
  end
  if asks.spilled then
    call('SET', key(asks.spilled), asks.payload)
  end
  return receipt
end

local digits = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f' }
local job, high = {}, nil
for n = 1, tonumber(ARGV[8]) do
  local digit = stamp % 16
  if digit < partitions or not high then
    high = format('%012x', math.floor(stamp / 16)) -- is the same for some jobs
  end
  job.index, job.lane, job.options = indexes[ARGV[at]], KEYS[used + n], options[n] or none
  job.rule, job.counted = job.options.rule or '', counted(job.options.counted)
  job.tenant, job.text = job.index.tenant, high .. digits[digit] .. ARGV[at + 1]
  local fine, receipt = pcall(offer, job)
  if not fine then
    if not string.find(type(receipt) == 'table' and receipt.err or tostring(receipt), 'WRONGTYPE', 1, true) then
      error(receipt) -- Redis is full, or a replica: nothing was done
    end
    receipt = refuse(job, 'broken')
  end
  if recorded and receipt ~= 'd' then
    recorded[#recorded + 1], recorded[#recorded + 2] = int(#recorded), lane_name(job) .. ' ' .. sub(job.text, 1, HEAD)
  end
  receipts[#receipts + 1] = receipt
  stamp = stamp + partitions
  at = at + 2
end

local totals = { ['in'] = meta[6] or 0, other = meta[7] or 0, out = meta[8] or 0 }
for _, tenant in ipairs(tenants) do
  for _, field in ipairs({ 'in', 'other', 'out' }) do
    totals[field] = totals[field] + tenant[field]
    if tenant[field] > 0 and not tenant.broken then
      call('HINCRBY', tenant.counters, field, tenant[field])
    end
  end
  -- The counters of a tenant with nothing to do expire.
  if tenant.due and call('ZADD', KEYS[3], 'NX', instant, tenant.name) == 1 then
    call('PERSIST', tenant.counters)
  elseif tenant.other > 0 and not tenant.broken then
    local fine, known = pcall(call, 'ZSCORE', KEYS[3], tenant.name)
    if fine and not known then
      call('PEXPIRE', tenant.counters, '86400000')
    end
  end
  if tenant.waiting > tenant.capacity then
    tell('!full ' .. #notices, tenant.name)
  end
end
for number, subject in pairs(subjects) do
  if subject.labelled > 0 then
    call('ZINCRBY', KEYS[10], subject.labelled, scopes[tonumber(number)])
  end
end
if later[1] < math.huge then
  tell('!later', int(later[1]))
end
if #notices > 0 then
  call('XADD', KEYS[2], '*', unpack(notices))
end
-- A lease that has run out stays so: Redis's clock may be set back, and the leader was told nothing.
call('HSET', KEYS[1], 'schema', ARGV[1], 'till', till, 'stamp', int(stamp), 'in', totals['in'], 'other', totals.other, 'out', totals.out)
for reason, n in pairs(reasons) do
  call('HINCRBY', KEYS[1], 'dropped:' .. reason, n)
end
if recorded and #recorded > 0 then
  call('XADD', KEYS[9], 'MAXLEN', '~', '10000', '*', 'at', instant, 'offered', int(totals['in'] + totals.other),
    unpack(recorded))
  call('PEXPIRE', KEYS[9], '60000')
end
local text = table.concat(receipts, '\n')
call('SET', KEYS[7], text, 'PX', ARGV[3])
return { now, text, pauses, states, replaced }
