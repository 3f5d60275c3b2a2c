-- offer puts jobs at the end of their lanes, a batch at a time.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  name of the batch: offering it again returns the same receipts
-- ARGV[2]  how long the batch is remembered, in ms
-- ARGV[3]  how long a job's own ID is remembered, in ms
-- ARGV[4]  then nine for each job: tenant, user, ID, whether the ID is the caller's own
--          (0|1), cost, deadline and not before in µs (0 for none), header words
--          "max_retry priority fold", body
--
-- Returns one line for each job, "status place start reason rule": status is accepted,
-- replaced, duplicate or dropped; place counts from 1 and is 0 where it is not known;
-- start is the estimated slot in µs; reason and rule of a drop, or "-". The rule may
-- hold spaces.

local FIELDS = 9
local batch = Q .. 'batch:' .. ARGV[1]
local known = redis.call('GET', batch)
if known then
  return known
end

-- estimate guesses the slot of the k-th job from now under a subject's rules, if
-- nothing else came: what the rule says now, and its period for every n before it.
local function estimate(subject, t, k)
  local at = t
  for _, rule in ipairs(subject.rules) do
    if not rule.drop then
      local before = (k - 1) / rule.n
      if rule.kind ~= kinds.leak then
        before = math.floor(before)
      end
      at = math.max(at, rule.kind.when(subject, rule, t, 1) + math.floor(before * rule.period))
    end
  end
  return at
end

-- impossible returns the rule that can never admit the cost.
local function impossible(tenant, cost)
  for _, rules in ipairs({ queue.rules, tenant.policy.tenant, tenant.policy.user }) do
    for _, rule in ipairs(rules) do
      if cost > rule.top then
        return rule
      end
    end
  end
end

-- duplicate tells whether a job with the caller's own ID was offered before. An ID is
-- known as long as its job may wait for its time, and ARGV[3] more.
local function duplicate(tenant, user, job, not_before)
  local ttl = tonumber(ARGV[3]) + math.ceil(math.max(0, not_before - now) / 1000)
  return job.own and
    not redis.call('SET', Q .. 'id:' .. job.id, place_of(tenant, user, job), 'NX', 'PX', int(ttl))
end

-- fold puts the job in the place of the waiting one with its collapse key, if any.
local function fold(tenant, user, job)
  local older = job.fold and redis.call('HGET', fold_key(tenant, user), job.fold)
  if not older then
    return false
  end
  redis.call('HSET', fold_key(tenant, user), job.fold, write_job(job))
  drop(tenant, user, read_job(older), 'collapsed')
  return true
end

-- make_room drops the job of the bucket that has waited longest, if the policy wants
-- that rather than refusing the new one. Returns whether there is room now.
local function make_room(tenant)
  local oldest = redis.call('ZRANGE', Q .. 'oldest:' .. tenant.name, 0, 0)[1]
  if tenant.policy.overflow ~= 'drop_oldest' or not oldest then
    return false
  end
  local priority, user = string.sub(oldest, 1, 1), string.sub(oldest, 2)
  local first = head(tenant, user, priority)
  if not first then -- a mark from before the policy was another one for a while
    mark_oldest(tenant, user, priority)
    return false
  end
  leave(tenant, user, priority, first)
  drop(tenant, user, read_job(first.envelope), 'full')
  return true
end

local function offer(tenant, user, job, not_before)
  local rule = impossible(tenant, job.cost)
  if rule then
    drop(tenant, user, job, 'impossible', rule.name)
    return 'dropped 0 0 impossible ' .. rule.name
  end
  if not_before > now then
    later(tenant, user, write_job(job), not_before)
    return 'accepted 0 ' .. int(not_before) .. ' - -'
  end
  if fold(tenant, user, job) then
    return 'replaced 0 0 - -'
  end
  local waiting = tenant.counters.waiting
  local bucket = tenant.policy
  if bucket.capacity > 0 and waiting >= bucket.capacity and not make_room(tenant) then
    drop(tenant, user, job, 'full')
    return 'dropped 0 0 full -'
  end
  local who = user_of(tenant, user)
  local open, own_open = math.max(now, tenant.paused, paused_until('q')), math.max(now, who.paused)
  local bound = earliest({ who }, own_open, job.cost)
  local soonest = earliest({ queue, tenant.subject }, math.max(open, bound), job.cost)
  if expired(tenant, job, soonest) then
    drop(tenant, user, job, 'expired')
    return 'dropped 0 0 expired -'
  end
  local place = enter(tenant, user, job, write_job(job), bound, 'back')
  local start = math.max(estimate(queue, open, 1), estimate(tenant.subject, open, waiting + 1),
    estimate(who, own_open, place))
  return 'accepted ' .. place .. ' ' .. int(start) .. ' - -'
end

local receipts = {}
for i = 4, #ARGV, FIELDS do
  local name, user, id, own, cost, deadline, not_before, words, body = unpack(ARGV, i, i + FIELDS - 1)
  local max_retry, priority, key = string.match(words, '^(%d+) (%d) ([^ ]+)$')
  local tenant = tenant_of(name)
  local job = {
    cost = tonumber(cost), deadline = tonumber(deadline), offered = now, failures = 0,
    max_retry = tonumber(max_retry), priority = priority, own = own == '1', id = id,
    fold = key ~= '-' and key or nil, body = body,
  }
  not_before = tonumber(not_before)
  local receipt = 'duplicate 0 0 - -'
  if not duplicate(tenant, user, job, not_before) then
    tally(tenant, 'offered', 1)
    receipt = offer(tenant, user, job, not_before)
    if job.own and string.find(receipt, '^dropped') then
      redis.call('DEL', Q .. 'id:' .. id) -- refused is not offered: it may come again
    end
  end
  receipts[#receipts + 1] = receipt
end
announce()
finish()

local reply = table.concat(receipts, '\n')
redis.call('SET', batch, reply, 'PX', ARGV[2])
return reply
