-- explain says why the jobs of a user wait. It changes nothing.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  tenant
-- ARGV[2]  user
--
-- Returns {now, jobs waiting in the tenant's bucket, in the user's lanes, start of the
-- next job or 0, cost of it, policy, then the pauses of queue, tenant and user (0 for
-- none), then a list for each rule: {scope, name, when, most, room, drop, shadow}}.
-- `when` is the earliest instant that the rule allows the next job; times in µs.

local tenant, user = tenant_of(ARGV[1]), ARGV[2]
local who = user_of(tenant, user)
local waiting, job = 0, nil
for _, priority in ipairs({ HIGH, NORMAL, LOW }) do
  waiting = waiting + redis.call('LLEN', lane_key(tenant, user, priority))
  local first = not job and head(tenant, user, priority)
  job = first and read_job(first) or job
end
local cost = job and job.cost or 1

local paused = { paused_until('q'), tenant.paused, who.paused }
local scopes = { { 'queue', queue }, { 'tenant', tenant.subject }, { 'user', who } }
local open = math.max(now, paused[1], paused[2], paused[3])
local start = earliest({ queue, tenant.subject, who }, open, cost)
local reply = { now, tenant.counters.waiting, waiting, job and start or 0, cost, tenant.policy.name,
  paused[1], paused[2], paused[3] }
for _, scope in ipairs(scopes) do
  for _, rules in ipairs({ scope[2].rules, scope[2].rules.shadow }) do
    for _, rule in ipairs(rules) do
      reply[#reply + 1] = {
        scope[1], rule.name, rule_when(scope[2], rule, now, cost),
        rule.top < INFINITY and rule.top or 1, room(scope[2], rule, now),
        rule.drop and 1 or 0, rule.shadow and 1 or 0,
      }
    end
  end
end
return reply
