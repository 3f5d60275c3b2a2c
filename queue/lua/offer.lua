-- offer puts jobs at the end of their lanes, a batch at a time.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  name of the batch: offering it again returns the same receipts
-- ARGV[2]  how long the batch is remembered, in ms
-- ARGV[3]  then four for each job: tenant, user, not before in µs (0 for none), and its
--          envelope without the instant of its offer
--
-- Returns one line for each job, "instant status place start reason rule": the instant of
-- its offer, which is the ID of a job without one of its own; status is accepted, replaced,
-- duplicate or dropped; place counts from 1 and is 0 where it is not known; start is the
-- estimated slot in µs; reason and rule of a drop, or "-". The rule may hold spaces.

local FIELDS = 4
local batch = Q .. 'batch:' .. ARGV[1]
local known = call('GET', batch)
if known then
  return known
end

-- estimate guesses the slot of the k-th job from now under a subject's rules, if
-- nothing else came: what each rule says now, and its period for every n before it.
local function estimate(subject, t, k)
  local at, rules = t, subject.rules
  local now_says = subject.now_says
  if not now_says then
    now_says = {}
    for r = 1, #rules do
      now_says[r] = rules[r].drop and -INFINITY or rules[r].kind.when(subject, rules[r], t, 1)
    end
    subject.now_says = now_says
  end
  for r = 1, #rules do
    local rule = rules[r]
    local before = (k - 1) / rule.n
    if rule.kind ~= kinds.leak then
      before = floor(before)
    end
    at = max(at, now_says[r] + floor(before * rule.period))
  end
  return at
end

-- impossible returns the rule that can never admit the cost.
local function impossible(tenant, cost)
  if cost == 1 then
    return
  end
  for _, rules in ipairs({ queue.rules, tenant.policy.tenant, tenant.policy.user }) do
    for _, rule in ipairs(rules) do
      if cost > rule.top then
        return rule
      end
    end
  end
end

-- duplicate tells whether a job with the caller's own ID was offered before. An ID is
-- known as long as its job may wait for its time, and a day more.
local function duplicate(tenant, user, job, not_before)
  local ttl = ID_MEMORY + ceil(max(0, not_before - now) / 1000)
  return job.own and
    not call('SET', Q .. 'id:' .. job.id, place_of(tenant, user, job), 'NX', 'PX', int(ttl))
end

-- make_room drops the job of the bucket that has waited longest, if the policy wants
-- that rather than refusing the new one. Returns whether there is room now.
local function make_room(tenant)
  local oldest = call('ZRANGE', Q .. 'oldest:' .. tenant.name, 0, 0)[1]
  if tenant.policy.overflow ~= 'drop_oldest' or not oldest then
    return false
  end
  local priority, user = sub(oldest, 1, 1), sub(oldest, 2)
  if discard(tenant, user, priority, 'full') then
    return true
  end
  mark_oldest(tenant, user, priority) -- from before the policy was another one for a while
  return false
end

-- too_late tells whether a job would wait longer than it may.
local function too_late(tenant, who, job, open, own_open)
  if job.deadline == 0 and tenant.policy.max_wait == 0 then
    return false
  end
  local own = earliest_of(who, own_open, job.cost)
  return expired(tenant, job, earliest({ queue, tenant.subject }, max(open, own), job.cost))
end

local function offer(tenant, user, job, not_before)
  local rule = impossible(tenant, job.cost)
  if rule then
    drop(tenant, user, job, 'impossible', rule.name)
    return 'dropped 0 0 impossible ' .. rule.name
  end
  if not_before > now and not expired(tenant, job, not_before) then
    job.ready = not_before
    later(tenant, user, write_job(job), not_before)
    return 'accepted 0 ' .. int(not_before) .. ' - -'
  end
  local who = user_of(tenant, user)
  local open, own_open = max(now, tenant.paused, queue.paused), max(now, who.paused)
  if too_late(tenant, who, job, max(open, not_before), own_open) then
    drop(tenant, user, job, 'expired')
    return 'dropped 0 0 expired -'
  end
  if job.fold and call('HEXISTS', fold_key(tenant, user), job.fold) == 1 then
    collapse(tenant, user, job, job.envelope)
    return 'replaced 0 0 - -'
  end
  local waiting = tenant.counters.waiting
  local bucket = tenant.policy
  if bucket.capacity > 0 and waiting >= bucket.capacity and not make_room(tenant) then
    drop(tenant, user, job, 'full')
    return 'dropped 0 0 full -'
  end
  local place = enter(tenant, user, job, job.envelope, function()
    return (earliest_of(who, own_open, job.cost))
  end, 'back')
  local start = max(estimate(queue, open, 1), estimate(tenant.subject, open, waiting + 1), estimate(who, own_open, place))
  return format('accepted %d %d - -', place, start)
end

queue.paused = paused_until('q')
-- No two jobs of a queue have the same instant: it is their name.
local stamp = max(now, tonumber(call('GET', Q .. 'offered') or 0))
local receipts = {}
for i = 3, #ARGV, FIELDS do
  local tenant, user, not_before = tenant_of(ARGV[i]), ARGV[i + 1], tonumber(ARGV[i + 2])
  local job = read_job(format('%013x', stamp) .. ARGV[i + 3])
  stamp = stamp + 1
  local receipt = 'duplicate 0 0 - -'
  if not duplicate(tenant, user, job, not_before) then
    tally(tenant, 'offered', 1)
    receipt = offer(tenant, user, job, not_before)
    if job.own and find(receipt, '^dropped') then
      call('DEL', Q .. 'id:' .. job.id) -- refused is not offered: it may come again
    end
  end
  receipts[#receipts + 1] = sub(job.envelope, 1, 13) .. ' ' .. receipt
end
call('SET', Q .. 'offered', int(stamp))
announce()
finish()

local reply = table.concat(receipts, '\n')
call('SET', batch, reply, 'PX', ARGV[2])
return reply
