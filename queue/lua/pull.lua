-- pull takes the jobs whose slots have come, or come within `lead`, and claims them.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  name of the worker
-- ARGV[2]  n, its free places: the most jobs to take
-- ARGV[3]  lead in µs: how much before its slot a job may be taken
-- ARGV[4]  lease in µs: how long a claim holds without being renewed
-- ARGV[5]  number of this pull, higher than of any that the worker has sent before
-- ARGV[6]  number of the last pull whose reply the worker has got
-- ARGV[7]  then the tokens of finished jobs, to be acknowledged
--
-- Returns {now, next, then four for each job: token, slot, "tenant:user", envelope}.
-- `next` is when this worker should pull again if it is not woken before, -1 for never.

local worker, wanted = ARGV[1], tonumber(ARGV[2])
local lead, lease = tonumber(ARGV[3]), tonumber(ARGV[4])
local pull, heard = tonumber(ARGV[5]), tonumber(ARGV[6])
local horizon = now + lead
local due = Q .. 'due'
local visits = 4 * wanted + 100 -- bounds the work of one call
local SWEEP = 1000
local full = false
queue.paused = paused_until('q')

done({ unpack(ARGV, 7) })

local last_pull = Q .. 'last:' .. worker
local number, first, last = string.match(redis.call('GET', last_pull) or '0 1 0', '^(%d+) (%d+) (%d+)$')
number = tonumber(number)
if pull <= number then
  -- It was on its way for so long that the worker has sent another one: nobody waits for
  -- this reply.
  finish()
  return { now, -1 }
end

-- unheard hands back what the worker's last pull took, if its reply was lost.
local function unheard()
  if number <= heard then
    return
  end
  for token = tonumber(last), tonumber(first), -1 do
    local claim = claim_of(int(token))
    if claim then
      unspend(claim)
      put_back(claim)
    end
  end
end

-- take_back returns the jobs of expired leases to their lanes.
local function take_back(amnesty)
  if now < amnesty then
    return
  end
  local expired = redis.call('ZRANGEBYSCORE', Q .. 'leases', '-inf', int(now), 'LIMIT', 0, 100)
  for _, token in ipairs(newest_first(expired)) do
    local claim = claim_of(token)
    if claim then
      failed(claim, 'the lease expired: its worker died or lost Redis', false, put_back)
    else
      redis.call('ZREM', Q .. 'leases', token)
    end
  end
end

-- mature moves the jobs whose time has come from `later` into their lanes: a job that
-- was attempted already to the front, since it is the oldest.
local function mature()
  local ready = redis.call('ZRANGEBYSCORE', Q .. 'later', '-inf', int(now), 'LIMIT', 0, 100)
  for _, member in ipairs(ready) do
    local name, user, envelope = string.match(member, '^([^: ]*):([^: ]*) (.*)$')
    local job = read_job(envelope)
    enter(tenant_of(name), user, job, envelope, now, job.failures > 0 and 'front' or 'back')
  end
  if #ready > 0 then
    redis.call('ZREM', Q .. 'later', unpack(ready))
  end
end

-- sweep lowers the bounds of an index to now, a part at a time: they were computed
-- under rules that no longer hold. Returns whether it is through.
local function sweep(index)
  local stale = redis.call('ZRANGEBYSCORE', index, '(' .. int(now), '+inf', 'LIMIT', 0, SWEEP)
  for _, member in ipairs(stale) do
    redis.call('ZADD', index, int(now), member)
  end
  return #stale < SWEEP
end

local function sweep_tenant(tenant)
  if tenant.swept ~= version then
    local through = true
    for priority in string.gmatch(tenant.priorities, '%d') do
      through = sweep(lanes_key(tenant, priority)) and through
    end
    if through then
      tenant.swept = version
      redis.call('HSET', tenant.key, 'swept', version)
    end
  end
end

-- next_lane returns the lane to look at: of the highest priority that has one due at t,
-- or else the one that is due first.
local function next_lane(tenant, t)
  local user, bound, priority = nil, INFINITY, nil
  for _, p in ipairs({ HIGH, NORMAL, LOW }) do
    if string.find(tenant.priorities, p, 1, true) then
      local first = redis.call('ZRANGE', lanes_key(tenant, p), 0, 0, 'WITHSCORES')
      if first[1] and tonumber(first[2]) < bound then
        user, bound, priority = first[1], tonumber(first[2]), p
        if bound <= t then
          break
        end
      end
    end
  end
  return user, bound, priority
end

-- unfit returns why a job that may not start before `slot` is not to start at all.
local function unfit(tenant, job, subjects, slot)
  if job.own and redis.call('GET', Q .. 'id:' .. job.id) == 'cancelled' then
    return 'cancelled'
  end
  if expired(tenant, job, slot) then
    return 'expired'
  end
  local rule = slot <= horizon and refusing(subjects, slot, job.cost)
  if rule then
    return 'rule', rule.name
  end
end

local claims = {}

-- step looks at one lane of the tenant and takes its first job if it may start. The
-- index holds lower bounds: where one proves too low, it is corrected and nothing else
-- happens. Returns the tenant's next bound, or nothing if no lane is left.
local function step(tenant, bound)
  local open = math.max(now, queue.paused, tenant.paused)
  local t, binding = earliest({ tenant.subject }, open, 1)
  local user, lane_bound, priority = next_lane(tenant, t)
  if not user then
    return
  end
  if math.max(t, lane_bound) > horizon then
    if t > bound then
      blame(binding, math.max(now, bound), t)
    end
    return math.max(t, lane_bound)
  end
  local who = user_of(tenant, user)
  local first = head(tenant, user, priority)
  local job = read_job(first.envelope)
  local own, holding = earliest({ who }, math.max(now, who.paused), job.cost)
  local subjects = { queue, tenant.subject, who }
  local slot = earliest(subjects, math.max(t, own), job.cost)
  local reason, rule = unfit(tenant, job, subjects, slot)
  if reason then
    leave(tenant, user, priority, first)
    drop(tenant, user, job, reason, rule)
    return bound
  end
  if own > lane_bound and own > t then
    blame(holding, math.max(now, lane_bound), own)
    redis.call('ZADD', lanes_key(tenant, priority), int(own), user)
    return bound
  end
  if slot > horizon then
    return slot
  end
  spend(subjects, slot, job.cost)
  track(job, 'started')
  claims[#claims + 1] = { slot = slot, who = tenant.name .. ':' .. user, envelope = first.envelope }
  wanted = wanted - 1
  local again, by = earliest({ who }, slot, 1)
  if first.after and by then
    blame(by, slot, again)
  end
  -- The microsecond makes lanes, and tenants, without rules take turns.
  leave(tenant, user, priority, first, math.max(again, math.max(slot, lane_bound) + 1))
  tally(tenant, 'started', 1)
  return math.max(slot, bound) + 1
end

-- serve steps through the lanes of a tenant until its bound passes that of the next
-- tenant in line.
local function serve(tenant, bound, rival)
  sweep_tenant(tenant)
  while bound and bound <= horizon and bound <= rival and wanted > 0 and visits > 0 do
    visits = visits - 1
    bound = step(tenant, bound)
  end
  if bound then
    redis.call('ZADD', due, int(bound), tenant.name)
  else
    redis.call('ZREM', due, tenant.name)
  end
end

-- serve_all goes through the tenants in the order of their bounds. Returns when the
-- first job that was not taken may start.
local function serve_all()
  while true do
    local first = redis.call('ZRANGE', due, 0, 1, 'WITHSCORES')
    if not first[1] then
      return INFINITY
    end
    local open = math.max(now, tonumber(first[2]), queue.paused)
    local at = earliest({ queue }, open, 1)
    if at > horizon then
      return at
    end
    if wanted == 0 or visits == 0 then
      full = wanted == 0
      return now
    end
    serve(tenant_of(first[1]), tonumber(first[2]), tonumber(first[4] or INFINITY))
  end
end

-- claim_all gives every taken job its token and lease. Returns the first and the last token.
local function claim_all(reply)
  if #claims == 0 then
    return 1, 0
  end
  local token = redis.call('INCRBY', Q .. 'seq', #claims) - #claims
  local running, leases = {}, {}
  for i, claim in ipairs(claims) do
    local name = int(token + i)
    running[2 * i - 1], running[2 * i] = name, int(claim.slot) .. ' ' .. claim.who .. ' ' .. claim.envelope
    leases[2 * i - 1], leases[2 * i] = int(now + lease), name
    for _, field in ipairs({ name, claim.slot, claim.who, claim.envelope }) do
      reply[#reply + 1] = field
    end
  end
  redis.call('HSET', Q .. 'running', unpack(running))
  redis.call('ZADD', Q .. 'leases', unpack(leases))
  return token + 1, token + #claims
end

-- on_watch decides who wakes up for the instant `at`: one worker watches, the others
-- sleep until they are woken, or until the one on watch must be dead.
local function on_watch(at)
  local watch = redis.call('HMGET', Q .. 'watch', 'at', 'worker')
  local watched, watcher = tonumber(watch[1] or INFINITY), watch[2]
  if watcher and watcher ~= worker and watched <= at and watched + WATCH_SLACK > now then
    return watched + WATCH_SLACK
  end
  if at == INFINITY then
    redis.call('DEL', Q .. 'watch')
  else
    redis.call('HSET', Q .. 'watch', 'at', int(at), 'worker', worker)
  end
  return at
end

-- hand_over wakes another worker for what this one has no place for.
local function hand_over()
  if redis.call('HGET', Q .. 'watch', 'worker') == worker then
    redis.call('DEL', Q .. 'watch')
  end
  wake(now)
end

local amnesty = beat(lease)
unheard()
take_back(amnesty)
mature()
announce()
if redis.call('GET', Q .. 'swept') ~= version and sweep(due) then
  redis.call('SET', Q .. 'swept', version)
end

local next_start = serve_all()
local reply = { now, -1 }
first, last = claim_all(reply)
redis.call('SET', last_pull, int(pull) .. ' ' .. int(first) .. ' ' .. int(last), 'PX', int(math.ceil(2 * lease / 1000)))
save(queue, now)
for _, tenant in pairs(tenants) do
  save(tenant.subject, now)
  for _, who in pairs(tenant.users) do
    save(who, now)
  end
end
finish()

if full then
  hand_over()
  reply[2] = now
else
  -- Half the lead is for the round trip; in the other half jobs gather for one pull.
  local at = math.max(now, next_start - lead / 2)
  local ripe = redis.call('ZRANGE', Q .. 'later', 0, 0, 'WITHSCORES')
  at = math.min(at, tonumber(ripe[2] or INFINITY))
  local stale = redis.call('ZRANGE', Q .. 'leases', 0, 0, 'WITHSCORES')
  if stale[2] then
    at = math.min(at, math.max(tonumber(stale[2]), amnesty))
  end
  at = on_watch(at)
  if at < INFINITY then
    reply[2] = at
  end
end
return reply
