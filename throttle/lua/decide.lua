-- decide answers, for each request, when it may start under the rules of all its subjects,
-- and spends what it costs of each.
--
-- KEYS    the subjects of each request, in order, then the lists of logs that may be long:
--         declared, so that a cluster whose slots move does not take them for empty
-- ARGV[1] JSON list of the shapes of requests: {verb, cost and rules of each subject...}.
--         The verb "allow" spends if it may start now, "reserve" at its slot however far,
--         "peek" spends and writes nothing; "reserve 1500 3000" spends if its slot, which is
--         at least 1500 us from now, lies no more than 3000 us behind that; and
--         "reserve 1500 3000 1,4 more push/3" takes turns as push/3, whose weights at the
--         subjects are 1 and 4, and which wants more than it asks for ("all" if not). Rules
--         are as compiled, and decoded here
-- ARGV    then pairs: a shape, and how many requests in a row have it
--
-- Returns now in microseconds, then FIELDS numbers for each request: what was decided and
-- by whom (see whom), how much remains, the slot, when the binding rule's state is as new,
-- who objects of the shadow rules, when the binding rule lets more start than remains, and
-- twice for how long a caller that takes turns should wait, and 1 if the slot was taken;
-- instants are in microseconds. An error stands in the place of the first number.

local FIELDS = 7
local HORIZON = 100 * 366 * 86400 * 1000000 -- no slot lies further ahead than a century

local now = clock()

-- strictest finds the rule that leaves the least room now, the first of several, with its
-- subject and that room.
local function strictest(subjects)
  for s = 1, #subjects do
    local rules = subjects[s].rules
    for r = 1, #rules do
      if rules[r].kind.when(subjects[s], rules[r], now, 1) > now then
        return rules[r], subjects[s], 0
      end
    end
  end
  local found, whose, least
  for _, subject in ipairs(subjects) do
    for _, rule in ipairs(subject.rules) do
      local left = room(subject, rule, now)
      if not least or left < least then
        found, whose, least = rule, subject, left
      end
    end
  end
  return found, whose, least or 0
end

-- whom packs an outcome (1 admitted, 2 deferred, 3 dropped), and the places of a subject
-- and of its rule, from 1, or 0 for none.
local function whom(outcome, subject, rule)
  return outcome + (rule and 4 * (subject.place + 65536 * rule.place) or 0)
end

-- has tells whether the rules of any subject have a property.
local function has(shape, property)
  for i = 2, #shape do
    if shape[i][property] and shape[i][property] ~= none then
      return true
    end
  end
  return false
end

-- states_of reads all states at once, which takes Redis half the time of reading them one
-- by one. Those that were written since, and those that it cannot read, are read again.
local function states_of(n)
  if n < 2 or n >= 1000 then
    return none
  elseif n == #KEYS then
    return call('MGET', unpack(KEYS))
  end
  return call('MGET', unpack(KEYS, 1, n))
end

local states, stale

-- decide decides one request, whose subjects are the keys behind the first `before`, and
-- writes the reply behind the first `at` numbers.
local function decide(shape, before, replies, at)
  local verb, from, subjects = shape.verb, now + shape.after, {}
  for i = 2, #shape do
    local k = before + i - 1
    local key = KEYS[k]
    local subject = read_subject(key, shape[i], not stale[key] and states[k])
    subject.place = i - 1
    subjects[i - 1] = subject
  end
  local slot, rule, whose = from, nil, subjects[1]
  if #subjects == 1 then
    slot, rule = earliest_of(whose, from)
  else
    slot, rule, whose = earliest(subjects, from)
  end
  local outcome = slot > now and 1 or 0
  if shape.drops then
    local refused, by = refusing(subjects, slot)
    if refused then
      outcome, rule, whose = 2, refused, by
    end
  end
  local written, again = outcome == 0 and verb ~= 'peek', 0
  if outcome < 2 and shape.by then
    written, again = take_turn(shape, subjects, slot, now, rule, whose)
  elseif outcome == 1 then
    written = verb == 'reserve' and slot - from <= shape.within
  end
  local taken, objection, objector = written, nil, nil
  if written then
    objection, objector = spend(subjects, slot)
  else
    if shape.counts and (verb == 'allow' or outcome == 2 and verb == 'reserve') then
      written = true
      spend_refused(subjects, now)
      if outcome == 1 then -- the refusal counts against whoever comes back
        slot, rule, whose = earliest(subjects, now)
      end
    end
    if shape.shadow then
      objection, objector = objecting(subjects, slot)
    end
  end

  local remaining = 0
  if not rule then
    rule, whose, remaining = strictest(subjects)
  elseif whose.rules.cost > 1 then
    remaining = room(whose, rule, now)
  end
  replies[at + 1] = whom(outcome + 1, whose, rule)
  replies[at + 2] = remaining
  replies[at + 3] = slot
  replies[at + 4] = rule and rule.kind.full(whose, rule) or now
  replies[at + 5] = objection and whom(0, objector, objection) or 0
  replies[at + 6] = rule and next_free(whose, rule, now, remaining) or now
  replies[at + 7] = 2 * again + (taken and 1 or 0)
  for i = 1, written and #subjects or 0 do
    save(subjects[i], now)
    stale[subjects[i].key] = true
  end
end

local shapes = cjson.decode(ARGV[1])
for _, shape in ipairs(shapes) do
  local verb, after, within, weights, more, by = match(shape[1], '^(%a+) ?(%d*) ?(%d*) ?([%d,]*) ?(%a*) ?(.*)$')
  shape.verb, shape.after, shape.within = verb, tonumber(after) or 0, tonumber(within) or HORIZON
  if by ~= '' then
    shape.by, shape.more, shape.weights = by, more == 'more', {}
    for weight in string.gmatch(weights, '%d+') do
      shape.weights[#shape.weights + 1] = tonumber(weight)
    end
  end
  for i = 2, #shape do
    shape[i] = make_rules(shape[i])
  end
  shape.drops, shape.counts, shape.shadow = has(shape, 'drops'), has(shape, 'counts'), has(shape, 'shadow')
end

local subjects = 0
for i = 2, #ARGV, 2 do
  subjects = subjects + (#shapes[tonumber(ARGV[i])] - 1) * ARGV[i + 1]
end
states, stale = states_of(subjects), {}

-- told_before copies the last reply, if a caller that takes turns asks for the same subjects and has got nothing.
local function told_before(shape, before, replies, at)
  local n = #shape - 1
  if not shape.by or replies[at] % 2 == 1 then
    return false
  end
  for k = before + 1, before + n do
    if KEYS[k] ~= KEYS[k - n] then
      return false
    end
  end
  for field = 1, FIELDS do
    replies[at + field] = replies[at - FIELDS + field]
  end
  return true
end

local replies, keys, at = { now }, 0, 1
for i = 2, #ARGV, 2 do
  local shape = shapes[tonumber(ARGV[i])]
  for nth = 1, tonumber(ARGV[i + 1]) do
    -- What is wrong with one request (a key of the wrong type) is not the others' trouble.
    local fine, why = true, nil
    if nth == 1 or not told_before(shape, keys, replies, at) then
      fine, why = pcall(decide, shape, keys, replies, at)
    end
    if not fine then
      replies[at + 1] = type(why) == 'table' and why.err or tostring(why)
      for field = 2, FIELDS do
        replies[at + field] = 0
      end
    end
    keys, at = keys + #shape - 1, at + FIELDS
  end
end
write_turns()
return replies
