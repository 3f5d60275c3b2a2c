-- refund gives the slot of a running attempt back to the rules of its user, who saw
-- nothing of it. The rules of the tenant and the queue keep it: the attempt took place.
-- A slot is given back once, however often it is asked for.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  token
-- ARGV[2]  "1" if the job ends with this attempt, and the next of its lane may come
--
-- Returns {now, outcome}: 0 the claim was lost, 1 given back, now or before.

local claim = claim_of(ARGV[1])
if not claim then
  return { now, 0 }
end
local who = user_of(claim.tenant, claim.user)
if claim.slot > 0 then
  refund({ who }, claim.slot, claim.job.cost, now)
  redis.call('HSET', Q .. 'running', claim.token,
    '0 ' .. claim.tenant.name .. ':' .. claim.user .. ' ' .. claim.envelope)
end
-- The bounds in the index were those of a slot that was spent.
if ARGV[2] == '1' then
  look_again(claim.tenant, claim.user)
  redis.call('ZADD', Q .. 'due', 'XX', 'LT', int(now), claim.tenant.name)
  wake(now)
end
return { now, 1 }
