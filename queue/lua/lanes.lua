-- lanes: what waits in a queue, and where. Prepended, after the rules and the envelopes, to
-- every script of this package. KEYS[1] is the prefix of all keys of the queue, "wc:{q}:".
--
-- Tenants and users arrive escaped: they contain no colon and no space.
--
-- In its lane, a job with a collapse key is only a stub "=key"; its envelope lies in the
-- lane's fold, where a newer job can take its place.

local Q = KEYS[1]
local now = clock()

local SUFFIX = { [HIGH] = ':high', [NORMAL] = '', [LOW] = ':low' }
local WATCH_SLACK = 500000 -- µs after which a worker on watch is taken for dead
local KEEP_DROPS, KEEP_DEAD = 100000, 100000
local ID_MEMORY = '86400000' -- ms that the caller's own ID is known, and longer while its job waits
local INFINITY = math.huge

local function at_once()
  return now
end

-- track notes what became of a job with the caller's own ID, as long as that is known:
-- "started", "dropped", "dead", "cancelled", or where it waits, "tenant:user:priority".
local function track(job, where)
  if job.own then
    call('SET', Q .. 'id:' .. job.id, where, 'XX', 'KEEPTTL')
  end
end

local function place_of(tenant, user, job)
  return tenant.name .. ':' .. user .. ':' .. job.priority
end

-- stats are what the script adds to the counters of the queue; finish writes them.
local stats = {}
local function count(name, by)
  stats[name] = (stats[name] or 0) + by
end

-- counters_of reads the counters of a tenant from their fields, behind two others.
local COUNTERS = { 'waiting', 'offered', 'started', 'failed', 'dropped', 'dead' }
local function counters_of(fields)
  local counters = {}
  for i, name in ipairs(COUNTERS) do
    counters[name] = tonumber(fields[i + 2] or 0)
  end
  return counters
end

local setup = call('HMGET', Q .. 'policies', 'version', 'default', 'queue', 'assigned')
local version, default_policy, assigned = setup[1] or '0', setup[2] or '', setup[4] == '1'
local queue = read_subject(Q .. 'state:q', parse(setup[3]))

local policies = {}
local function policy_named(name)
  if not policies[name] then
    local text = call('HMGET', Q .. 'policies', name .. '/tenant', name .. '/user', name .. '/bucket')
    local capacity, overflow, max_wait = string.match(text[3] or '0 - 0', '(%d+) (%S+) (%d+)')
    policies[name] = {
      name = name, tenant = parse(text[1]), user = parse(text[2]),
      capacity = tonumber(capacity), overflow = overflow, max_wait = tonumber(max_wait),
    }
  end
  return policies[name]
end

-- paused_until returns until when a scope is paused: q, t:<tenant> or u:<tenant>:<user>.
local any_paused
local function paused_until(scope)
  if any_paused == nil then
    any_paused = call('ZCARD', Q .. 'paused') > 0
  end
  return any_paused and tonumber(call('ZSCORE', Q .. 'paused', scope) or 0) or 0
end

-- shadowed counts, by shadow rule, the starts that it would not have let be; finish
-- writes it.
local shadowed = {}
local function object(rule)
  shadowed[rule.name] = (shadowed[rule.name] or 0) + 1
end

-- blocked sums, by rule, how long jobs waited for a slot that it bound; finish writes it.
local blocked = {}
local function blame(name, from, to)
  blocked[name] = (blocked[name] or 0) + max(0, to - from)
end

-- tenant_of returns a tenant with its policy, rules and counters, read once a script.
local tenants = {}
local function tenant_of(name)
  if not tenants[name] then
    local key = Q .. 'tenant:' .. name
    local known = call('HMGET', key, 'priorities', 'swept', unpack(COUNTERS))
    local policy = policy_named(
      assigned and call('HGET', Q .. 'policies', 'tenant:' .. name) or default_policy)
    local subject = read_subject(Q .. 'state:t:' .. name, policy.tenant)
    tenants[name] = {
      name = name, key = key, policy = policy, priorities = known[1] or NORMAL, swept = known[2] or '0',
      counters = counters_of(known), counted = {}, paused = paused_until('t:' .. name),
      subject = subject, users = {},
    }
  end
  return tenants[name]
end

-- user_of returns the subject of a tenant's user.
local function user_of(tenant, user)
  local who = tenant.users[user]
  if not who then
    local scope = 'u:' .. tenant.name .. ':' .. user
    who = read_subject(Q .. 'state:' .. scope, tenant.policy.user)
    who.paused = paused_until(scope)
    tenant.users[user] = who
  end
  return who
end

local function tally(tenant, name, by)
  tenant.counters[name] = tenant.counters[name] + by
  tenant.counted[name] = true
  count(name, by)
end

local function lanes_key(tenant, priority)
  return Q .. 'lanes:' .. tenant.name .. SUFFIX[priority]
end

local function lane_key(tenant, user, priority)
  return Q .. 'lane:' .. tenant.name .. ':' .. user .. SUFFIX[priority]
end

local function fold_key(tenant, user)
  return Q .. 'fold:' .. tenant.name .. ':' .. user
end

-- drop records that a job will never run, and why. If it had been cancelled, its ID was
-- kept for as long as it waited, and is known for a day from now on.
local function drop(tenant, user, job, reason, rule)
  call('XADD', Q .. 'drops', 'MAXLEN', '~', KEEP_DROPS, '*',
    'id', job.id, 'tenant', tenant.name, 'user', user, 'reason', reason, 'rule', rule or '',
    'at', int(now))
  tally(tenant, 'dropped', 1)
  track(job, 'dropped')
  if job.own and call('PTTL', Q .. 'id:' .. job.id) == -1 then
    call('PEXPIRE', Q .. 'id:' .. job.id, ID_MEMORY)
  end
end

-- expired tells whether a job that cannot start before t is past its deadline then.
local function expired(tenant, job, t)
  local deadline = job.deadline
  if deadline == 0 and tenant.policy.max_wait > 0 then
    deadline = job.offered + tenant.policy.max_wait
  end
  return deadline > 0 and t > deadline
end

-- bury keeps a job whose attempts are exhausted.
local function bury(tenant, user, job, why)
  call('XADD', Q .. 'dead', 'MAXLEN', '~', KEEP_DEAD, '*',
    'id', job.id, 'tenant', tenant.name, 'user', user, 'error', why, 'at', int(now),
    'job', write_job(job))
  track(job, 'dead')
  tally(tenant, 'dead', 1)
end

-- unfold returns the envelope of a lane's entry, and its collapse key if it has one.
local function unfold(tenant, user, entry)
  if string.sub(entry, 1, 1) ~= '=' then
    return entry
  end
  local fold = string.sub(entry, 2)
  return call('HGET', fold_key(tenant, user), fold), fold
end

-- mark_oldest notes when the first job of a lane, its entry given, was offered, or that
-- there is none. Only a bucket that drops its oldest job needs to know.
local function mark_oldest(tenant, user, priority, entry)
  if tenant.policy.overflow ~= 'drop_oldest' then
    return
  end
  local oldest = Q .. 'oldest:' .. tenant.name
  if entry then
    local job = read_job((unfold(tenant, user, entry)))
    call('ZADD', oldest, int(job.offered), priority .. user)
  else
    call('ZREM', oldest, priority .. user)
  end
end

-- in_order sorts priorities, the first to be served first.
local function in_order(priorities)
  local sorted = ''
  for _, priority in ipairs({ HIGH, NORMAL, LOW }) do
    if find(priorities, priority, 1, true) then
      sorted = sorted .. priority
    end
  end
  return sorted
end

-- collapse keeps the newer of a job and the waiting one with its collapse key, in the
-- place of that one, and drops the older. It returns whether there was one.
local function collapse(tenant, user, job, envelope)
  local fold = fold_key(tenant, user)
  if call('HSETNX', fold, job.fold, envelope) == 1 then
    return false
  end
  local other = read_job(call('HGET', fold, job.fold))
  if other.offered > job.offered then
    drop(tenant, user, job, 'collapsed')
  else
    call('HSET', fold, job.fold, envelope)
    drop(tenant, user, other, 'collapsed')
  end
  return true
end

-- enter puts a job at the 'back' or the 'front' of its lane. `bound` returns a lower bound
-- of the lane's next slot, if that is asked for. Returns its place in the lane, or nothing
-- if it or the waiting one with its collapse key was dropped.
local function enter(tenant, user, job, envelope, bound, door)
  local lane = lane_key(tenant, user, job.priority)
  local entry = envelope
  if job.fold then
    if collapse(tenant, user, job, envelope) then
      return
    end
    entry = '=' .. job.fold
  end
  local length = call(door == 'front' and 'LPUSH' or 'RPUSH', lane, entry)
  if length == 1 or door == 'front' then
    local at = bound()
    call('ZADD', lanes_key(tenant, job.priority), 'LT', int(at), user)
    tenant.soonest = min(tenant.soonest or INFINITY, at)
    mark_oldest(tenant, user, job.priority, envelope)
  end
  if not find(tenant.priorities, job.priority, 1, true) then
    tenant.priorities = in_order(tenant.priorities .. job.priority)
    call('HSET', tenant.key, 'priorities', tenant.priorities)
  end
  tally(tenant, 'waiting', 1)
  return length
end

-- look_again lowers the bounds of a user's lanes to now: they were right for slots that
-- were given back since, or for a pause that was lifted.
local function look_again(tenant, user)
  for priority in string.gmatch(tenant.priorities, '%d') do
    call('ZADD', lanes_key(tenant, priority), 'XX', 'LT', int(now), user)
  end
end

-- head returns the envelope of the first job of a lane, or nothing if it is empty.
local function head(tenant, user, priority)
  local entry = call('LINDEX', lane_key(tenant, user, priority), '0')
  return entry and (unfold(tenant, user, entry))
end

-- draw takes the first job out of a lane, or nothing if it is empty. Whoever draws moves
-- the lane in its index, or out of it if none is `left`.
local function draw(tenant, user, priority)
  local lane = lane_key(tenant, user, priority)
  local entry = call('LPOP', lane)
  if not entry then
    return
  end
  local envelope, fold = unfold(tenant, user, entry)
  if fold then
    call('HDEL', fold_key(tenant, user), fold)
  end
  if tenant.policy.overflow == 'drop_oldest' then
    mark_oldest(tenant, user, priority, call('LINDEX', lane, '0'))
  end
  tally(tenant, 'waiting', -1)
  return { entry = entry, envelope = envelope, fold = fold, left = call('LLEN', lane) }
end

-- undraw puts a drawn job back as if nothing had happened.
local function undraw(tenant, user, priority, first)
  call('LPUSH', lane_key(tenant, user, priority), first.entry)
  if first.fold then
    call('HSET', fold_key(tenant, user), first.fold, first.envelope)
  end
  mark_oldest(tenant, user, priority, first.entry)
  tally(tenant, 'waiting', 1)
end

-- discard draws the first job of a lane for good, and says why.
local function discard(tenant, user, priority, reason)
  local first = draw(tenant, user, priority)
  if not first or first.left == 0 then
    call('ZREM', lanes_key(tenant, priority), user)
  end
  if first then
    drop(tenant, user, read_job(first.envelope), reason)
  end
  return first ~= nil
end

-- wake tells one idle worker to pull, unless one is on watch for that instant already.
local function wake(at)
  local watch = tonumber(call('HGET', Q .. 'pulse', 'watch') or '') or INFINITY
  if (at < watch or watch + WATCH_SLACK < now) and call('LLEN', Q .. 'wake') == 0 then
    call('LPUSH', Q .. 'wake', '1')
  end
end

-- later keeps a job until an instant; pull moves it into its lane then.
local function later(tenant, user, envelope, at)
  call('ZADD', Q .. 'later', int(at), tenant.name .. ':' .. user .. ' ' .. envelope)
  wake(at)
end

-- announce enters every tenant that got jobs into the index of who is due next.
local function announce()
  local soonest = INFINITY
  for name, tenant in pairs(tenants) do
    if tenant.soonest then
      local bound = earliest_of(tenant.subject, max(tenant.soonest, tenant.paused), 1)
      call('ZADD', Q .. 'due', 'LT', int(bound), name)
      soonest = min(soonest, bound)
    end
  end
  if soonest < INFINITY then
    wake(soonest)
  end
end

-- finish writes the counters.
local function finish()
  for _, tenant in pairs(tenants) do
    local fields = {}
    for name in pairs(tenant.counted) do
      fields[#fields + 1] = name
      fields[#fields + 1] = int(tenant.counters[name])
    end
    if #fields > 0 then
      call('HSET', tenant.key, unpack(fields))
    end
  end
  for name, by in pairs(stats) do
    if by ~= 0 then
      call('HINCRBY', Q .. 'stats', name, int(by))
    end
  end
  for rule, by in pairs(blocked) do
    call('HINCRBY', Q .. 'blocked', rule, int(by))
  end
  for rule, by in pairs(shadowed) do
    call('HINCRBY', Q .. 'shadowed', rule, int(by))
  end
end
