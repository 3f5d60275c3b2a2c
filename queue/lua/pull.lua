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
-- Returns {now, next, then two for each job: its token and "slot tenant:user envelope"}.
-- `next` is when this worker should pull again if it is not woken before, -1 for never.

local worker, wanted = ARGV[1], tonumber(ARGV[2])
local lead, lease = tonumber(ARGV[3]), tonumber(ARGV[4])
local pull, heard = tonumber(ARGV[5]), tonumber(ARGV[6])
local horizon = now + lead
local visits = 4 * wanted + 100 -- bounds the work of one call
local TURN = 8 -- the most jobs that a tenant behind its slots takes before others
local pulse = call('HMGET', Q .. 'pulse', 'beat', 'amnesty', 'watch', 'watcher', 'swept')
local amnesty = amnesty_after(pulse[1], pulse[2], lease)
queue.paused = paused_until('q')

done({ unpack(ARGV, 7) })

local last_pull = Q .. 'last:' .. worker
local number, first, last = string.match(call('GET', last_pull) or '0 1 0', '^(%d+) (%d+) (%d+)$')
number = tonumber(number)
if pull <= number then
  -- It was on its way for so long that the worker has sent another one: nobody waits for
  -- this reply.
  finish()
  return { now, -1 }
end

-- open_tenant opens the lines of a tenant's lanes, those of the highest priority first.
local function open_tenant(tenant)
  tenant.lines, tenant.open = {}, max(now, queue.paused, tenant.paused)
  tenant.scopes = { queue, tenant.subject }
  tenant.drops = queue.rules.drops or tenant.policy.tenant.drops or tenant.policy.user.drops
  for priority in string.gmatch(tenant.priorities, '%d') do
    local line = open_line(lanes_key(tenant, priority))
    line.priority = priority
    tenant.lines[#tenant.lines + 1] = line
  end
end

-- scopes_of returns all subjects of a job. It is one table for all users of a tenant.
local function scopes_of(tenant, who)
  tenant.scopes[3] = who
  return tenant.scopes
end

-- next_lane returns the lane to look at: its line, its user and its bound. It is of the
-- highest priority that has one due at t, or else the one that is due first. A bound that
-- has passed counts as now.
local function next_lane(tenant, t)
  local lines = tenant.lines
  for i = 1, #lines do
    local user = first_due(lines[i], t)
    if user then
      return lines[i], user, now
    end
  end
  local found, first, soonest = nil, nil, INFINITY
  for i = 1, #lines do
    local user, bound = first_two(lines[i])
    if bound < soonest then
      found, first, soonest = lines[i], user, bound
    end
  end
  return found, first, soonest
end

-- unfit returns why a job that may not start before `slot` is not to start at all.
local function unfit(tenant, who, job, slot)
  if job.own and call('GET', Q .. 'id:' .. job.id) == 'cancelled' then
    return 'cancelled'
  end
  if expired(tenant, job, slot) then
    return 'expired'
  end
  local rule = tenant.drops and slot <= horizon and refusing(scopes_of(tenant, who), slot, job.cost)
  if rule then
    return 'rule', rule.name
  end
end

local claims = {}

-- let_go lets the lane that a job was drawn from wait for its bound, if more wait in it.
local function let_go(line, user, first, bound)
  if first.left > 0 then
    move(line, user, bound)
  else
    strike(line, user)
  end
end

-- take claims a drawn job for its slot. Returns from when the next of its user may start.
local function take(tenant, user, who, first, job, slot)
  local objection = spend(scopes_of(tenant, who), slot, job.cost)
  if objection then
    object(objection)
  end
  track(job, 'started')
  tally(tenant, 'started', 1)
  claims[#claims + 1] = int(slot) .. ' ' .. tenant.name .. ':' .. user .. ' ' .. first.envelope
  wanted = wanted - 1
  return first.left > 0 and (earliest_of(who, slot, 1)) or slot
end

-- slot_of returns the slot of a job whose tenant lets it start at t, and what bound that: a
-- rule's name, "paused", or nothing. Every rule is asked since when the job could have
-- started, were it not for the rules; what it allows then, it allows later.
local function slot_of(tenant, who, job, t, binding)
  local slot, by = min(job.ready, t), nil
  if job.cost > 1 or queue.rules.any then
    slot, by = earliest(scopes_of(tenant, who), slot, job.cost)
  else -- the tenant has answered with t
    slot, by = earliest_of(who, slot, 1)
  end
  if binding and t >= slot then
    slot, by = t, binding
  end
  local paused = max(tenant.paused, queue.paused, who.paused)
  if paused > slot then
    return max(t, paused), 'paused', paused
  end
  return max(t, slot), by and by.name, slot
end

-- step looks at one lane of the tenant and takes its first job if it may start. The
-- index holds lower bounds: where one proves too low, it is corrected and nothing else
-- happens. Returns the tenant's next bound, or nothing if no lane is left.
local function step(tenant, bound)
  local t, binding = earliest_of(tenant.subject, tenant.open, 1)
  if t > horizon and t > bound and tenant.counters.waiting > 0 then
    return t
  end
  local line, user, lane_bound = next_lane(tenant, t)
  if not user then
    return
  end
  if max(t, lane_bound) > horizon then
    return max(t, lane_bound)
  end
  local first = draw(tenant, user, line.priority)
  if not first then
    strike(line, user)
    return bound
  end
  local who, job = user_of(tenant, user), read_job(first.envelope)
  local slot, by, bound_until = slot_of(tenant, who, job, t, binding)
  local reason, rule = unfit(tenant, who, job, slot)
  if reason then
    let_go(line, user, first, lane_bound)
    drop(tenant, user, job, reason, rule)
    if reason == 'rule' then
      spend_refused(scopes_of(tenant, who), now, job.cost)
    end
    return bound
  end
  if slot > t then
    local own = earliest_of(who, max(now, who.paused), job.cost)
    local too_low = own > lane_bound and own > t
    if too_low or slot > horizon then
      undraw(tenant, user, line.priority, first)
      if too_low then
        move(line, user, own)
        return bound
      end
      return slot
    end
  end
  if by then
    blame(by, job.ready, bound_until)
  end
  -- The microsecond makes lanes, and tenants, without rules take turns.
  local again = take(tenant, user, who, first, job, slot)
  let_go(line, user, first, max(again, max(slot, lane_bound) + 1))
  return max(slot, bound) + 1
end

-- serve steps through the lanes of a tenant until its bound passes that of its rival, or
-- for as many jobs as a turn has.
local function serve(line, name, bound, rival, turn)
  local tenant = tenant_of(name)
  if not tenant.lines then
    sweep_tenant(tenant)
    open_tenant(tenant)
  end
  while bound and bound <= horizon and (bound <= rival or turn > 0) and wanted > 0 and visits > 0 do
    visits, turn = visits - 1, turn - 1
    bound = step(tenant, bound)
  end
  if bound then
    move(line, name, bound)
  else
    strike(line, name)
  end
end

-- serve_all lets the tenants that are behind their bounds take turns, then goes through
-- all in the order of their bounds. Returns when the first job that was not taken may start.
local function serve_all(line)
  while true do
    local name, bound, rival, turn = first_due(line, now), now, now, TURN
    if not name then
      name, bound, rival = first_two(line)
      turn = 0
    end
    if not name then
      return INFINITY
    end
    local at = earliest_of(queue, max(now, bound, queue.paused), 1)
    if at > horizon then
      return at
    end
    if wanted == 0 or visits == 0 then
      return now
    end
    serve(line, name, bound, rival, turn)
  end
end

-- settle writes what the rules and the lanes remember of the jobs that were taken.
local function settle()
  save(queue, now)
  for _, tenant in pairs(tenants) do
    save(tenant.subject, now)
    for _, who in pairs(tenant.users) do
      save(who, now)
    end
    for _, line in ipairs(tenant.lines or none) do
      close_line(line)
    end
  end
end

-- claim_all gives every taken job its token and lease. Returns the first and the last token.
local function claim_all(reply)
  if #claims == 0 then
    return 1, 0
  end
  local token = call('INCRBY', Q .. 'seq', #claims) - #claims
  local running, leases, expiry = {}, {}, int(now + lease)
  for i, claim in ipairs(claims) do
    local name = int(token + i)
    running[2 * i - 1], running[2 * i] = name, claim
    leases[2 * i - 1], leases[2 * i] = expiry, name
    reply[#reply + 1] = name
    reply[#reply + 1] = claim
  end
  call('HSET', Q .. 'running', unpack(running))
  call('ZADD', Q .. 'leases', unpack(leases))
  return token + 1, token + #claims
end

-- next_pull decides when this worker pulls again, and who wakes up for the instant at
-- which more can be done: one worker watches, the others sleep until they are woken, or
-- until the one on watch must be dead. Returns that, and the watch.
local function next_pull(at, full)
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

if number > heard then
  unheard(tonumber(first), tonumber(last))
end
local takes = min(take_back(amnesty), mature())
announce()
local swept = pulse[5]
if swept ~= version and sweep(Q .. 'due') then
  swept = version
end

local tenants_due = open_line(Q .. 'due')
local next_start = serve_all(tenants_due)
close_line(tenants_due)
local full = wanted == 0 and next_start <= now
local reply = { now, -1 }
first, last = claim_all(reply)
call('SET', last_pull, format('%d %d %d', pull, first, last), 'PX', int(ceil(2 * lease / 1000)))
settle()

-- Half the lead is for the round trip; in the other half jobs gather for one pull.
local again, watch, watcher = next_pull(min(max(now, next_start - lead / 2), takes), full)
if again < INFINITY then
  reply[2] = again
end
call('HSET', Q .. 'pulse', 'beat', int(now), 'amnesty', int(amnesty), 'swept', swept or '',
  'watch', watch < INFINITY and int(watch) or '', 'watcher', watcher or '')
finish()
if full then
  wake(now) -- whatever this one has no place for, another one is to take
end
return reply
