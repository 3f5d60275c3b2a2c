-- admit asks whether jobs that are late for their slots may start now, or so soon that the
-- reply is there by then. Its own old slot is taken out first. A leak was paid at that
-- slot and stays paid: what a late start can break are the distances between starts.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  how far ahead the new slots are to lie, in µs
-- ARGV[2]  then two for each job, in the order of their slots: its token, and its slot in
--          µs as the worker knows it
--
-- Returns {now, then two for each job: outcome, slot}: 0 the claim was lost, 1 start at the
-- slot, 2 the job is back at the front of its lane.

local ahead = tonumber(ARGV[1])

-- again takes a slot for the distances between starts alone, if they leave it free.
local function again(subjects, slot, cost)
  local all = {}
  for i, subject in ipairs(subjects) do
    all[i], subject.rules = subject.rules, logged(subject.rules)
  end
  local free = earliest(subjects, slot, cost) == slot and not refusing(subjects, slot, cost)
  if free then
    spend(subjects, slot, cost)
  end
  for i, subject in ipairs(subjects) do
    subject.rules = all[i]
  end
  return free
end

local refused = {}

local function admit(claim, missed)
  if claim.slot ~= missed or now < claim.slot then
    return 1, claim.slot -- admitted before, and the reply was lost; or not late at all
  end
  local subjects, cost, slot = subjects_of(claim), claim.job.cost, now + ahead
  for _, subject in ipairs(subjects) do
    refund_logs(subject, claim.slot, cost)
  end
  local free = again(subjects, slot, cost)
  for _, subject in ipairs(subjects) do
    if not free then
      refund_states(subject, claim.slot, cost)
    end
    save(subject, now)
  end
  if free then
    call('HSET', Q .. 'running', claim.token,
      int(slot) .. ' ' .. claim.tenant.name .. ':' .. claim.user .. ' ' .. claim.envelope)
    return 1, slot
  end
  look_again(claim.tenant, claim.user)
  tally(claim.tenant, 'started', -1)
  refused[#refused + 1] = claim
  return 2, 0
end

local reply = { now }
for i = 2, #ARGV, 2 do
  local claim, outcome, slot = claim_of(ARGV[i]), 0, 0
  if claim then
    outcome, slot = admit(claim, tonumber(ARGV[i + 1]))
  end
  reply[#reply + 1] = outcome
  reply[#reply + 1] = slot
end
for i = #refused, 1, -1 do -- they come in the order of their slots
  put_back(refused[i])
end
announce()
finish()
return reply
