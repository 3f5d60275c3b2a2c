-- decide answers, for each request, when its cost may start under the rules of all its
-- subjects, and spends it.
--
-- KEYS    the subjects of each request, in order
-- ARGV[1] JSON list of the shapes of requests: {verb, cost, rules of each subject...}.
--         The verb "allow" spends if it may start now, "reserve" at its slot however far,
--         "peek" spends and writes nothing; rules are as compiled, and decoded here
-- ARGV[2] JSON list of {shape, how many requests in a row have it}
--
-- Returns now in microseconds, and for each request either the text of an error or
-- "outcome slot subject rule remaining full", with " subject rule" of the shadow rule that
-- objects, if one does: outcome 0 admitted, 1 deferred, 2 dropped; slot and full (when the
-- binding rule's state is as new) in microseconds; subjects and rules are 1-based places,
-- 0 for none.

local HORIZON = 100 * 366 * 86400 * 1000000 -- no slot lies further ahead than a century

local now = clock()

-- strictest finds the rule that leaves the least room now, the first of several.
local function strictest(subjects)
  for s = 1, #subjects do
    local subject = subjects[s]
    local rules = subject.rules
    for r = 1, #rules do
      if rules[r].kind.when(subject, rules[r], now, 1) > now then
        return rules[r], s, 0
      end
    end
  end
  local found, whose, least
  for s, subject in ipairs(subjects) do
    for _, rule in ipairs(subject.rules) do
      local left = room(subject, rule, now)
      if not least or left < least then
        found, whose, least = rule, s, left
      end
    end
  end
  return found, whose, least or 0
end

-- place returns where a subject stands in the request, from 1.
local function place(subjects, subject)
  for s = 1, #subjects do
    if subjects[s] == subject then
      return s
    end
  end
end

-- decide decides one request, whose subjects are the keys behind the first `before`.
local function decide(shape, before)
  local verb, cost, subjects = shape[1], shape[2], {}
  for i = 3, #shape do
    subjects[i - 2] = read_subject(KEYS[before + i - 2], shape[i])
  end
  local slot, binding, whose = earliest(subjects, now, cost)
  local refused, by = refusing(subjects, slot, cost)
  local outcome = refused and 2 or slot > now and 1 or 0
  local spends = outcome == 0 and verb ~= 'peek'
    or outcome == 1 and verb == 'reserve' and slot - now <= HORIZON
  local counts = not spends and (verb == 'allow' or outcome == 2 and verb == 'reserve')
  local objection, objector
  if spends then
    objection, objector = spend(subjects, slot, cost)
  else
    objection, objector = objecting(subjects, slot, cost)
    counts = counts and spend_refused(subjects, now, cost)
  end

  local rule, s, remaining, full = refused or binding, 0, 0, now
  if rule then
    s = place(subjects, by or whose)
    remaining = cost == 1 and 0 or room(subjects[s], rule, now)
  else
    rule, s, remaining = strictest(subjects)
  end
  if rule then
    full = rule.kind.full(subjects[s], rule)
  end
  if spends or counts then
    for i = 1, #subjects do
      save(subjects[i], now)
    end
  end
  local reply = format('%d %d %d %d %d %d', outcome, slot, s or 0, rule and rule.place or 0, remaining, full)
  if objection then
    reply = reply .. format(' %d %d', place(subjects, objector), objection.place)
  end
  return reply
end

local shapes = cjson.decode(ARGV[1])
for _, shape in ipairs(shapes) do
  for i = 3, #shape do
    shape[i] = make_rules(shape[i])
  end
end

local replies, key = { now }, 0
for _, run in ipairs(cjson.decode(ARGV[2])) do
  local shape = shapes[run[1]]
  for _ = 1, run[2] do
    -- What is wrong with one request (a key of the wrong type) is not the others' trouble.
    local fine, reply = pcall(decide, shape, key)
    replies[#replies + 1] = fine and reply or type(reply) == 'table' and reply.err or tostring(reply)
    key = key + #shape - 2
  end
end
return replies
