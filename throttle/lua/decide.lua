-- decide answers when `cost` may start under the rules of all subjects, and spends it.
--
-- KEYS[2i-1]  log of subject i: list of slots
-- KEYS[2i]    state of subject i: hash
-- ARGV[1]     "allow" spends if it may start now, "reserve" spends at its slot however
--             far, "peek" spends and writes nothing
-- ARGV[2]     cost
-- ARGV[2+i]   compiled rules of subject i
--
-- Returns {outcome, slot, now, subject, rule, limit, remaining, full}: outcome 0
-- admitted, 1 deferred, 2 dropped; slot, now and full (when the binding rule's state is
-- as new) in microseconds; subject and rule are the 1-based places of the binding rule,
-- 0 when there is no rule.

local verb, cost = ARGV[1], tonumber(ARGV[2])
local now = clock()

local subjects = {}
for i = 1, #KEYS / 2 do
  subjects[i] = new_subject(KEYS[2 * i - 1], KEYS[2 * i], parse(ARGV[2 + i]))
end

-- place finds the binding rule in the request; without one it is the rule that leaves
-- the least room at t.
local function place(rule, subject, t)
  local least, s, r
  for i, candidate in ipairs(subjects) do
    for j, of in ipairs(candidate.rules) do
      if of == rule and candidate == subject then
        return i, j
      end
      local room = of.kind.room(candidate, of, t)
      if not rule and (not least or room < least) then
        least, s, r = room, i, j
      end
    end
  end
  return s or 0, r or 0
end

local slot, binding, whose = earliest(subjects, now, cost)
local outcome = slot > now and 1 or 0
local refused, by = refusing(subjects, slot, cost)
local spends = verb == 'reserve' or verb == 'allow' and outcome == 0
if refused then
  outcome, binding, whose, spends = 2, refused, by, false
end
if spends then
  spend(subjects, slot, cost)
end

local reply = { outcome, slot, now, 0, 0, 0, 0, now }
local s, r = place(binding, whose, now)
if r > 0 then
  local subject = subjects[s]
  local rule = subject.rules[r]
  reply[4], reply[5] = s, r
  reply[6], reply[7] = rule.kind.most(rule), rule.kind.room(subject, rule, now)
  reply[8] = rule.kind.full(subject, rule)
end
if spends then
  for _, subject in ipairs(subjects) do
    save(subject, now)
  end
end
return reply
