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
local pulse = redis.call('HMGET', Q .. 'pulse', 'beat', 'amnesty', 'watch', 'watcher', 'swept')
local amnesty = amnesty_after(pulse[1], pulse[2], lease)
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

-- first_score returns the least score of a sorted set.
local function first_score(key)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or INFINITY)
end

-- take_back returns the jobs of expired leases to their lanes. Returns when there is
-- more to take back.
local function take_back()
  local soonest = math.max(first_score(Q .. 'leases'), amnesty)
  if soonest > now then
    return soonest
  end
  local stale = redis.call('ZRANGEBYSCORE', Q .. 'leases', '-inf', int(now), 'LIMIT', 0, 100)
  for _, token in ipairs(newest_first(stale)) do
    local claim = claim_of(token)
    if claim then
      failed(claim, 'the lease expired: its worker died or lost Redis', false, put_back)
    else
      redis.call('ZREM', Q .. 'leases', token)
    end
  end
  return first_score(Q .. 'leases')
end

-- mature moves the jobs whose time has come from `later` into their lanes: a job that
-- was attempted already to the front, since it is the oldest. Returns when the next
-- ones are ripe.
local function mature()
  local soonest = first_score(Q .. 'later')
  if soonest > now then
    return soonest
  end
  local ripe = redis.call('ZRANGEBYSCORE', Q .. 'later', '-inf', int(now), 'LIMIT', 0, 100)
  for _, member in ipairs(ripe) do
    local name, user, envelope = string.match(member, '^([^: ]*):([^: ]*) (.*)$')
    local job = read_job(envelope)
    enter(tenant_of(name), user, job, envelope, now, job.failures > 0 and 'front' or 'back')
  end
  redis.call('ZREM', Q .. 'later', unpack(ripe))
  return first_score(Q .. 'later')
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

-- take claims the first job of a lane for its slot.
local function take(tenant, user, who, priority, first, job, slot, lane_bound)
  local objection = spend({ queue, tenant.subject, who }, slot, job.cost)
  if objection then
    object(objection)
  end
  track(job, 'started')
  claims[#claims + 1] = { slot = slot, who = tenant.name .. ':' .. user, envelope = first.envelope }
  wanted = wanted - 1
  local again = slot
  if first.after then
    local by
    again, by = earliest({ who }, slot, 1)
    if by then
      blame(by, slot, again)
    end
  end
  -- The microsecond makes lanes, and tenants, without rules take turns.
  leave(tenant, user, priority, first, math.max(again, math.max(slot, lane_bound) + 1))
  tally(tenant, 'started', 1)
end

-- step looks at one lane of the tenant and takes its first job if it may start. The
-- index holds lower bounds: where one proves too low, it is corrected and nothing else
-- happens. Returns the tenant's next bound, or nothing if no lane is left.
local function step(tenant, bound)
  local open = math.max(now, queue.paused, tenant.paused)
  local t, binding = earliest({ tenant.subject }, open, 1)
  if t > horizon and t > bound then
    blame(binding, math.max(now, bound), t)
    if tenant.counters.waiting > 0 then
      return t
    end
  end
  local user, lane_bound, priority = next_lane(tenant, t)
  if not user then
    return
  end
  if math.max(t, lane_bound) > horizon then
    return math.max(t, lane_bound)
  end
  local who = user_of(tenant, user)
  local first = head(tenant, user, priority)
  local job = read_job(first.envelope)
  local subjects = { queue, tenant.subject, who }
  local slot = earliest(subjects, math.max(t, who.paused), job.cost)
  local reason, rule = unfit(tenant, job, subjects, slot)
  if reason then
    leave(tenant, user, priority, first)
    drop(tenant, user, job, reason, rule)
    if reason == 'rule' then
      spend_refused(subjects, now, job.cost)
    end
    return bound
  end
  if slot > t then
    local own, holding = earliest({ who }, math.max(now, who.paused), job.cost)
    if own > lane_bound and own > t then
      blame(holding, math.max(now, lane_bound), own)
      redis.call('ZADD', lanes_key(tenant, priority), int(own), user)
      return bound
    end
    if slot > horizon then
      return slot
    end
  end
  take(tenant, user, who, priority, first, job, slot, lane_bound)
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

-- next_pull decides when this worker pulls again, and who wakes up for the instant at
-- which more can be done: one worker watches, the others sleep until they are woken, or
-- until the one on watch must be dead. Returns that, and the watch.
local function next_pull(at)
  local watched, watcher = tonumber(pulse[3] or '') or INFINITY, pulse[4]
  if full then -- this one cannot watch
    if watcher == worker then
      watched, watcher = INFINITY, nil
    end
    return now, watched, watcher
  end
  if watcher and watcher ~= worker and watched <= at and watched + WATCH_SLACK > now then
    return watched + WATCH_SLACK, watched, watcher
  end
  return at, at, worker
end

unheard()
local takes = math.min(take_back(), mature())
announce()
local swept = pulse[5]
if swept ~= version and sweep(due) then
  swept = version
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

-- Half the lead is for the round trip; in the other half jobs gather for one pull.
local again, watch, watcher = next_pull(math.min(math.max(now, next_start - lead / 2), takes))
if again < INFINITY then
  reply[2] = again
end
redis.call('HSET', Q .. 'pulse', 'beat', int(now), 'amnesty', int(amnesty), 'swept', swept or '',
  'watch', watch < INFINITY and int(watch) or '', 'watcher', watcher or '')
finish()
if full then
  wake(now) -- whatever this one has no place for, another one is to take
end
return reply
