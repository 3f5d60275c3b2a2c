-- pause lets nothing of a scope start before an instant, or lifts that. With a token,
-- the job of that claim returns to its lane, and its attempt does not count.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  scope: "q", "t" or "u"
-- ARGV[2]  tenant, or "" for a queue
-- ARGV[3]  user, or "" for a queue or a tenant
-- ARGV[4]  until when, in µs; 0 lifts the pause
-- ARGV[5]  token, or ""
--
-- Returns {now, outcome}: 0 if the claim was lost, else 1.

local kind, name, user, till, token = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local claim = token ~= '' and claim_of(token)
if token ~= '' and not claim then
  return { now, 0 }
end
if claim then
  name, user = claim.tenant.name, claim.user
end
local scope = ({ q = 'q', t = 't:' .. name, u = 'u:' .. name .. ':' .. user })[kind]

redis.call('ZREMRANGEBYSCORE', Q .. 'paused', '-inf', int(now))
if claim then -- a handler can make a pause longer, and not shorter
  redis.call('ZADD', Q .. 'paused', 'GT', int(max(now, till)), scope)
elseif till > now then
  redis.call('ZADD', Q .. 'paused', int(till), scope)
else
  redis.call('ZREM', Q .. 'paused', scope)
end
any_paused = nil

-- What waits is looked at again: the bounds in the index may be those of a longer pause.
if kind ~= 'q' then
  local tenant = tenant_of(name)
  if kind == 'u' then
    look_again(tenant, user)
  end
  redis.call('ZADD', Q .. 'due', 'XX', 'LT', int(now), name)
end
if claim then
  put_back(claim)
end
announce()
finish()
wake(now)
return { now, 1 }
