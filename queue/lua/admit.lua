-- admit asks whether a job that is late for its slot may start now, or so soon that the
-- reply is there by then. Its own old slot is taken out first. A leak was paid at that
-- slot and stays paid: what a late start can break are the distances between starts.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  token
-- ARGV[2]  its slot in µs, as the worker knows it
-- ARGV[3]  how far ahead its new slot is to lie, in µs
--
-- Returns {now, outcome, slot}: 0 the claim was lost, 1 start at the slot, 2 the job is
-- back at the front of its lane.

local claim = claim_of(ARGV[1])
if not claim then
  return { now, 0, 0 }
end
if claim.slot ~= tonumber(ARGV[2]) or now < claim.slot then
  return { now, 1, claim.slot } -- admitted before, and the reply was lost; or not late at all
end

local job, slot = claim.job, now + tonumber(ARGV[3])
local subjects, views = subjects_of(claim), {}
for i, subject in ipairs(subjects) do
  refund_logs(subject, claim.slot, job.cost)
  views[i] = logged(subject)
end
if earliest(views, slot, job.cost) == slot and not refusing(views, slot, job.cost) then
  spend(views, slot, job.cost)
  for _, view in ipairs(views) do
    save(view, now)
  end
  redis.call('HSET', Q .. 'running', claim.token,
    int(slot) .. ' ' .. claim.tenant.name .. ':' .. claim.user .. ' ' .. claim.envelope)
  return { now, 1, slot }
end
for _, subject in ipairs(subjects) do
  refund_states(subject, claim.slot, job.cost)
  save(subject, now)
end
look_again(claim.tenant, claim.user)
tally(claim.tenant, 'started', -1)
put_back(claim)
announce()
finish()
return { now, 2, 0 }
