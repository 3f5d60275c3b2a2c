-- admit asks whether a job that is late for its slot may start now. Its own old slot is
-- taken out first. A leak was paid at that slot and stays paid: what a late start can
-- break are the distances between starts.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  token
--
-- Returns {now, outcome}: 0 the claim was lost, 1 start at once, 2 the job is back at
-- the front of its lane.

local claim = claim_of(ARGV[1])
if not claim then
  return { now, 0 }
end

-- logged returns the subject with those of its rules that look at the log.
local function logged(subject)
  local rules = { keep = subject.rules.keep }
  for _, rule in ipairs(subject.rules) do
    if rule.kind.logged then
      rules[#rules + 1] = rule
    end
  end
  return new_subject(subject.log, subject.state, rules)
end

local job = claim.job
local subjects = {}
for i, subject in ipairs(subjects_of(claim)) do
  subjects[i] = logged(subject)
end
unlog(claim)
if earliest(subjects, now, job.cost) == now and not refusing(subjects, now, job.cost) then
  spend(subjects, now, job.cost)
  for _, subject in ipairs(subjects) do
    save(subject, now)
  end
  redis.call('HSET', Q .. 'running', claim.token,
    int(now) .. ' ' .. claim.tenant.name .. ':' .. claim.user .. ' ' .. claim.envelope)
  return { now, 1 }
end
unspend(claim)
put_back(claim)
announce()
finish()
return { now, 2 }
