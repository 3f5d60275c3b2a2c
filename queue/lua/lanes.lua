-- lanes: what waits in a queue, and where. Prepended, after the rules, to every script
-- of this package. KEYS[1] is the prefix of all keys of the queue, "wc:{q}:".
--
-- Tenants and users arrive escaped: they contain no colon and no space.
--
-- A job travels as an envelope: a header of words that scripts read, then a body that
-- only Go reads. In its lane, a job with a collapse key is only a stub "=key"; its
-- envelope lies in the lane's fold, where a newer job can take its place.

local Q = KEYS[1]
local now = clock()

local HIGH, NORMAL, LOW = '0', '1', '2'
local SUFFIX = { [HIGH] = ':high', [NORMAL] = '', [LOW] = ':low' }
local WATCH_SLACK = 500000 -- µs after which a worker on watch is taken for dead
local KEEP_DROPS, KEEP_DEAD = 100000, 100000
local INFINITY = math.huge

-- read_job returns the header of an envelope. The mark before the ID tells a caller's
-- own ("!"), which is tracked, from a generated one (".").
local function read_job(envelope)
  local cost, deadline, offered, failures, max_retry, priority, mark, id, fold, body =
    string.match(envelope, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d) ([!.])([^ ]+) ([^ ]+) (.*)$')
  return {
    cost = tonumber(cost), deadline = tonumber(deadline), offered = tonumber(offered),
    failures = tonumber(failures), max_retry = tonumber(max_retry), priority = priority,
    own = mark == '!', id = id, fold = fold ~= '-' and fold or nil, body = body,
  }
end

local function write_job(job)
  return table.concat({ int(job.cost), int(job.deadline), int(job.offered), int(job.failures),
    int(job.max_retry), job.priority, (job.own and '!' or '.') .. job.id, job.fold or '-', job.body }, ' ')
end

-- track notes what became of a job with the caller's own ID, as long as that is known:
-- "started", "dropped", "dead", "cancelled", or where it waits, "tenant:user:priority".
local function track(job, where)
  if job.own then
    redis.call('SET', Q .. 'id:' .. job.id, where, 'XX', 'KEEPTTL')
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

local setup = redis.call('HMGET', Q .. 'policies', 'version', 'default', 'queue', 'assigned')
local version, default_policy, assigned = setup[1] or '0', setup[2] or '', setup[4] == '1'
local queue = read_subject(Q .. 'state:q', parse(setup[3]))

local policies = {}
local function policy_named(name)
  if not policies[name] then
    local text = redis.call('HMGET', Q .. 'policies', name .. '/tenant', name .. '/user', name .. '/bucket')
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
    any_paused = redis.call('ZCARD', Q .. 'paused') > 0
  end
  return any_paused and tonumber(redis.call('ZSCORE', Q .. 'paused', scope) or 0) or 0
end

-- shadowed counts, by shadow rule, the starts that it would not have let be; finish
-- writes it.
local shadowed = {}
local function object(rule)
  shadowed[rule.name] = (shadowed[rule.name] or 0) + 1
end

-- blocked sums, by rule, how long it has kept tenants and lanes waiting; finish writes it.
local blocked = {}
local function blame(rule, from, to)
  local name = rule and rule.name or 'paused'
  blocked[name] = (blocked[name] or 0) + math.max(0, to - from)
end

-- tenant_of returns a tenant with its policy, rules and counters, read once a script.
local tenants = {}
local function tenant_of(name)
  if not tenants[name] then
    local key = Q .. 'tenant:' .. name
    local known = redis.call('HMGET', key, 'priorities', 'swept', unpack(COUNTERS))
    local policy = policy_named(
      assigned and redis.call('HGET', Q .. 'policies', 'tenant:' .. name) or default_policy)
    tenants[name] = {
      name = name, key = key, policy = policy, priorities = known[1] or NORMAL, swept = known[2] or '0',
      counters = counters_of(known), counted = {}, paused = paused_until('t:' .. name),
      subject = read_subject(Q .. 'state:t:' .. name, policy.tenant),
      users = {},
    }
  end
  return tenants[name]
end

-- user_of returns the subject of a tenant's user.
local function user_of(tenant, user)
  if not tenant.users[user] then
    local scope = 'u:' .. tenant.name .. ':' .. user
    tenant.users[user] = read_subject(Q .. 'state:' .. scope, tenant.policy.user)
    tenant.users[user].paused = paused_until(scope)
  end
  return tenant.users[user]
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

-- drop records that a job will never run, and why.
local function drop(tenant, user, job, reason, rule)
  redis.call('XADD', Q .. 'drops', 'MAXLEN', '~', KEEP_DROPS, '*',
    'id', job.id, 'tenant', tenant.name, 'user', user, 'reason', reason, 'rule', rule or '',
    'at', int(now))
  tally(tenant, 'dropped', 1)
  track(job, 'dropped')
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
  redis.call('XADD', Q .. 'dead', 'MAXLEN', '~', KEEP_DEAD, '*',
    'id', job.id, 'tenant', tenant.name, 'user', user, 'error', why, 'at', int(now),
    'job', write_job(job))
  track(job, 'dead')
  tally(tenant, 'dead', 1)
end

-- mark_oldest notes when the first job of a lane was offered, or that there is none.
-- Only a bucket that drops its oldest job needs to know.
local function mark_oldest(tenant, user, priority, envelope)
  if tenant.policy.overflow ~= 'drop_oldest' then
    return
  end
  local oldest = Q .. 'oldest:' .. tenant.name
  if envelope then
    redis.call('ZADD', oldest, int(read_job(envelope).offered), priority .. user)
  else
    redis.call('ZREM', oldest, priority .. user)
  end
end

-- enter puts a job at the 'back' or the 'front' of its lane. `bound` is a lower bound
-- of the lane's next slot. Returns its place in the lane, or nothing if it was folded
-- into a newer job.
local function enter(tenant, user, job, envelope, bound, door)
  local lane = lane_key(tenant, user, job.priority)
  local entry = envelope
  if job.fold then
    if redis.call('HSETNX', fold_key(tenant, user), job.fold, envelope) == 0 then
      drop(tenant, user, job, 'collapsed')
      return
    end
    entry = '=' .. job.fold
  end
  local length = redis.call(door == 'front' and 'LPUSH' or 'RPUSH', lane, entry)
  if length == 1 or door == 'front' then
    redis.call('ZADD', lanes_key(tenant, job.priority), 'LT', int(bound), user)
    tenant.soonest = math.min(tenant.soonest or INFINITY, bound)
    mark_oldest(tenant, user, job.priority, envelope)
  end
  if not string.find(tenant.priorities, job.priority, 1, true) then
    tenant.priorities = tenant.priorities .. job.priority
    redis.call('HSET', tenant.key, 'priorities', tenant.priorities)
  end
  tally(tenant, 'waiting', 1)
  return length
end

-- look_again lowers the bounds of a user's lanes to now: they were right for slots that
-- were given back since, or for a pause that was lifted.
local function look_again(tenant, user)
  for priority in string.gmatch(tenant.priorities, '%d') do
    redis.call('ZADD', lanes_key(tenant, priority), 'XX', 'LT', int(now), user)
  end
end

-- unfold returns the envelope of a lane's entry, and its collapse key if it has one.
local function unfold(tenant, user, entry)
  if string.sub(entry, 1, 1) ~= '=' then
    return entry
  end
  local fold = string.sub(entry, 2)
  return redis.call('HGET', fold_key(tenant, user), fold), fold
end

-- head returns the first job of a lane: its envelope, its fold and the entry after it;
-- nothing if the lane is empty.
local function head(tenant, user, priority)
  local two = redis.call('LRANGE', lane_key(tenant, user, priority), 0, 1)
  if not two[1] then
    return
  end
  local envelope, fold = unfold(tenant, user, two[1])
  return { envelope = envelope, fold = fold, after = two[2] }
end

-- leave takes the first job out of its lane. The lane's next bound is `bound`, or as it
-- was when there is none given.
local function leave(tenant, user, priority, first, bound)
  redis.call('LPOP', lane_key(tenant, user, priority))
  if first.fold then
    redis.call('HDEL', fold_key(tenant, user), first.fold)
  end
  if not first.after then
    redis.call('ZREM', lanes_key(tenant, priority), user)
    mark_oldest(tenant, user, priority)
  else
    if bound then
      redis.call('ZADD', lanes_key(tenant, priority), int(bound), user)
    end
    mark_oldest(tenant, user, priority, unfold(tenant, user, first.after))
  end
  tally(tenant, 'waiting', -1)
end

-- wake tells one idle worker to pull, unless one is on watch for that instant already.
local function wake(at)
  local watch = tonumber(redis.call('HGET', Q .. 'pulse', 'watch') or '') or INFINITY
  if (at < watch or watch + WATCH_SLACK < now) and redis.call('LLEN', Q .. 'wake') == 0 then
    redis.call('LPUSH', Q .. 'wake', '1')
  end
end

-- later keeps a job until an instant; pull moves it into its lane then.
local function later(tenant, user, envelope, at)
  redis.call('ZADD', Q .. 'later', int(at), tenant.name .. ':' .. user .. ' ' .. envelope)
  wake(at)
end

-- announce enters every tenant that got jobs into the index of who is due next.
local function announce()
  local soonest = INFINITY
  for name, tenant in pairs(tenants) do
    if tenant.soonest then
      local bound = earliest({ tenant.subject }, math.max(tenant.soonest, tenant.paused), 1)
      redis.call('ZADD', Q .. 'due', 'LT', int(bound), name)
      soonest = math.min(soonest, bound)
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
      redis.call('HSET', tenant.key, unpack(fields))
    end
  end
  for name, by in pairs(stats) do
    if by ~= 0 then
      redis.call('HINCRBY', Q .. 'stats', name, int(by))
    end
  end
  for rule, by in pairs(blocked) do
    redis.call('HINCRBY', Q .. 'blocked', rule, int(by))
  end
  for rule, by in pairs(shadowed) do
    redis.call('HINCRBY', Q .. 'shadowed', rule, int(by))
  end
end
