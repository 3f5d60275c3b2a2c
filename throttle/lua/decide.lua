-- decide answers, for each request, when it may start under the rules of all its subjects,
-- and spends what it costs of each.
--
-- KEYS    the subjects of each request, in order, then the lists of logs that may be long:
--         declared, so that a cluster whose slots move does not take them for empty
-- ARGV[1] JSON list of the shapes of requests: {verb, cost and rules of each subject...}.
--         The verb "allow" spends if it may start now, "reserve" at its slot however far,
--         "peek" spends and writes nothing, "count" counts what somebody else has refused;
--         "reserve 1500 3000" spends if its slot, which is at least 1500 us from now, lies
--         no more than 3000 us behind that. Rules are as compiled, and decoded here
-- ARGV    then pairs: a shape, and how many requests in a row have it
--
-- Returns now in microseconds, then FIELDS numbers for each request: what was decided and
-- by whom (see whom), how much remains, the slot, when the binding rule's state is as new,
-- who objects of the shadow rules, when the binding rule lets more start than remains, and
-- 1 if the slot was taken; instants are in microseconds. An error stands in the place of the
-- first number.

local FIELDS = 7
local HORIZON = 100 * 366 * 86400 * 1000000 -- no slot lies further ahead than a century

local now = clock()

-- room returns how many of cost 1 the rule lets start at t, found by asking.
local function room(subject, rule, t)
  if rule.kind.when(subject, rule, t, 1) > t then
    return 0
  end
  local low, high = 1, rule.stages and stage_at(rule, t).n or rule.top
  if high == math.huge then
    return 1
  end
  while low < high do
    local middle = ceil((low + high) / 2)
    if rule.kind.when(subject, rule, t, middle) > t then
      high = middle - 1
    else
      low = middle
    end
  end
  return low
end

-- next_free returns when the rule lets more start than the room that it has at t; t if that is
-- all that it ever lets start at once.
local function next_free(subject, rule, t, room)
  if room >= rule.top or room > 0 and rule.top == math.huge then
    return t
  end
  return rule.kind.when(subject, rule, t, room + 1)
end

-- spend_refused counts what was refused at t in the rules that count that.
local function spend_refused(subjects, t)
  for _, subject in ipairs(subjects) do
    if subject.rules.counts then
      local counting = {}
      for _, rule in ipairs(subject.rules) do
        if rule.counts then
          counting[#counting + 1] = rule
        end
      end
      take_all(subject, counting, t, subject.rules.cost, true)
      subject.written = true
    end
  end
end

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
  local written = outcome == 0 and (verb == 'allow' or verb == 'reserve') or outcome == 1 and verb == 'reserve' and slot - from <= shape.within
  local taken, objection, objector = written, nil, nil
  if written then
    objection, objector = spend(subjects, slot)
  else
    if shape.counts and (verb == 'allow' or verb == 'count' or outcome == 2 and verb == 'reserve') then
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
  elseif whose.rules.cost > 1 or rule.guard > 0 then -- otherwise there is none
    remaining = room(whose, rule, now)
  end
  replies[at + 1] = whom(outcome + 1, whose, rule)
  replies[at + 2] = remaining
  replies[at + 3] = slot
  replies[at + 4] = rule and rule.kind.full(whose, rule) or now
  replies[at + 5] = objection and whom(0, objector, objection) or 0
  replies[at + 6] = rule and next_free(whose, rule, now, remaining) or now
  replies[at + 7] = taken and 1 or 0
  for i = 1, written and #subjects or 0 do
    save(subjects[i], now)
    stale[subjects[i].key] = true
  end
end

local shapes = cjson.decode(ARGV[1])
for _, shape in ipairs(shapes) do
  local verb, after, within = match(shape[1], '^(%a+) ?(%d*) ?(%d*)$')
  shape.verb, shape.after, shape.within = verb, tonumber(after) or 0, tonumber(within) or HORIZON
  for i = 2, #shape do
    shape[i] = make_rules(shape[i], table.remove(shape[i], 1))
  end
  shape.drops, shape.counts, shape.shadow = has(shape, 'drops'), has(shape, 'counts'), has(shape, 'shadow')
end

local subjects = 0
for i = 2, #ARGV, 2 do
  subjects = subjects + (#shapes[tonumber(ARGV[i])] - 1) * ARGV[i + 1]
end
states, stale = states_of(subjects), {}

local replies, keys, at = { now }, 0, 1
for i = 2, #ARGV, 2 do
  local shape = shapes[tonumber(ARGV[i])]
  for _ = 1, tonumber(ARGV[i + 1]) do
    -- What is wrong with one request (a key of the wrong type) is not the others' trouble.
    local fine, why = pcall(decide, shape, keys, replies, at)
    if not fine then
      replies[at + 1] = type(why) == 'table' and why.err or tostring(why)
      for field = 2, FIELDS do
        replies[at + field] = 0
      end
    end
    keys, at = keys + #shape - 1, at + FIELDS
  end
end
return replies
