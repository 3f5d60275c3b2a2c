-- rules: how rules decide together. The last of the eight files that stand before every
-- script that decides, see base.lua.
--
-- A rule answers one question: the earliest instant >= t at which `cost` may start.
-- Several rules on several subjects are one decision: `earliest` finds the instant
-- that satisfies them all, `spend` then takes it from all of them, `save` writes.

-- new_rule makes a rule of a compiled one. Its cost never counts as more than `top`,
-- the most that it can ever admit: a rule tightened below a waiting cost lets that
-- start alone, rather than never.
local function new_rule(compiled, place, seen)
  local kind, flags = compiled[1], compiled[5]
  local rule = {
    kind = kinds[kind], name = kind, place = place, field = kind,
    n = compiled[2], period = compiled[3], burst = compiled[4], top = compiled[2],
    step = floor(compiled[3] / compiled[2]), odd = compiled[3] % compiled[2],
    drop = false, shadow = false, counts = false, side = false, guard = compiled[6] or 0, begins = compiled[7],
  }
  rule.far = floor(NEVER / (rule.step + 1))
  if rule.guard > 0 and not rule.begins then -- no slot lies within so much of the end of a period, or of a bucket
    rule.length = (kind == 'fixed_window' or rule.burst == 2) and rule.period or ceil(rule.period / rule.burst)
  end
  if kind == 'leak' or kind == 'spacing' then
    rule.top = math.huge
  elseif kind == 'ramp' then
    rule.top, rule.ramp = math.huge, rule.burst
  elseif kind == 'token_bucket' then
    rule.top = rule.burst
  end
  if flags ~= '-' then
    rule.drop = find(flags, 'd', 1, true) ~= nil
    rule.shadow = find(flags, 's', 1, true) ~= nil
    rule.counts = find(flags, 'c', 1, true) ~= nil and not rule.shadow
    rule.side = rule.shadow and 'shadow' or rule.counts and 'counting'
  end
  if not rule.kind.logged then
    local field = kind == 'warmup_calendar' and 'calendar' or kind == 'ramp' and 'leak' or kind
    field = rule.shadow and 'shadow:' .. field or field
    seen[field] = (seen[field] or 0) + 1
    rule.field = field .. '#' .. seen[field] -- older releases wrote none, and other numbers
  end
  if compiled[8] then
    rule.stages = stages_of(rule, compiled[8])
  end
  return rule
end

-- note_log widens what a log keeps to what the rule looks at: its slots and one more, so
-- that a log which has forgotten some can be told from one which has not.
local function note_log(size, rule)
  local widened = new_size(max(size.keep, rule.n + 1), max(size.span, rule.period))
  size.keep, size.span, size.mark = widened.keep, widened.span, widened.mark
end

-- make_rules makes rules of compiled ones, a list of {kind, n, period, burst or ramp, flags, guard, begins, stages}, for an action of a cost: rules.cost.
-- Shadow rules stand apart, in rules.shadow. rules.guarded says that what one of them allows it may not allow later: it has a guard, or is a
-- warm-up. Of all, rules.stateful are those with fields of
-- their own; rules.keep, rules.span and rules.mark, and those of rules.sides, say how many
-- slots the others look at, and for how long.
local function make_rules(compiled, cost)
  local rules = {
    cost = cost, any = #compiled > 0, keep = 0, span = 0, mark = '', stateful = none, sides = none,
    drops = false, counts = false, guarded = false, shadow = none,
  }
  local seen = {}
  for place, one in ipairs(compiled) do
    local rule = new_rule(one, place, seen)
    if not rule.kind.logged then
      local stateful = owned(rules, 'stateful')
      stateful[#stateful + 1] = rule
    elseif rule.side then
      local sides = owned(rules, 'sides')
      sides[rule.side] = sides[rule.side] or { keep = 0, span = 0, mark = '' }
      note_log(sides[rule.side], rule)
    else
      note_log(rules, rule)
    end
    if rule.shadow then
      local shadow = owned(rules, 'shadow')
      shadow[#shadow + 1] = rule
    else
      rules[#rules + 1] = rule
      rules.drops, rules.counts = rules.drops or rule.drop, rules.counts or rule.counts
      rules.guarded = rules.guarded or rule.guard > 0 or rule.stages ~= nil
    end
  end
  return rules
end

-- rule_when asks one rule: cost above what it can ever admit counts as all of that.
local function rule_when(subject, rule, t, cost)
  return rule.kind.when(subject, rule, t, cost < rule.top and cost or rule.top)
end

-- off returns the first instant >= t that does not lie in the guarded end of a period.
local function off(rule, t)
  if rule.begins then
    local _, finish = period_of(rule, t)
    return t >= finish - rule.guard and finish or t
  end
  local into = t % rule.length
  return t < NEVER and into >= rule.length - rule.guard and t - into + rule.length or t
end

-- later asks all deferring rules of a subject once, and returns the latest of their answers, with the rule that moved it last. Rules that
-- drop move it only off the guarded end of a period.
local function later(subject, t)
  local rules, binding = subject.rules, nil
  local cost = rules.cost
  for r = 1, #rules do
    local rule, at = rules[r], t
    if not rule.drop then
      at = rule.kind.when(subject, rule, t, cost < rule.top and cost or rule.top)
    end
    if rule.guard > 0 then
      at = off(rule, at)
    end
    if at > t then
      t, binding = at, rule
    end
  end
  return t, binding
end

-- earliest_of returns the first instant >= t at which every deferring rule of a subject
-- lets its cost start, with the rule that moved it last. What a rule allows at an instant it
-- allows at every later one, as long as nothing is spent: so the latest of their answers
-- suits them all, and nobody needs to be asked again, unless one of them has guards.
local function earliest_of(subject, t)
  local at, binding = later(subject, t)
  if subject.rules.guarded then
    for _ = 2, PASSES do
      local next, rule = later(subject, at)
      if not rule then
        break
      end
      at, binding = next, rule
    end
  end
  return at, binding
end

-- earliest does so for several subjects, and returns also whose rule it was.
local function earliest(subjects, t)
  local binding, whose
  for _ = 1, PASSES do
    local before, guarded = t, false
    for s = 1, #subjects do
      guarded = guarded or subjects[s].rules.guarded
      local at, rule = earliest_of(subjects[s], t)
      if rule then
        t, binding, whose = at, rule, subjects[s]
      end
    end
    if not guarded or t == before then
      break
    end
  end
  return t, binding, whose
end

-- refusing returns the first rule that drops rather than defers what starts at t.
local function refusing(subjects, t)
  for s = 1, #subjects do
    local subject = subjects[s]
    local rules = subject.rules
    for r = 1, rules.drops and #rules or 0 do
      if rules[r].drop and rule_when(subject, rules[r], t, rules.cost) > t then
        return rules[r], subject
      end
    end
  end
end

-- whom packs an outcome (1 admitted, 2 deferred, 3 dropped), and the places of a subject
-- and of its rule, from 1, or 0 for none.
local function whom(outcome, subject, rule)
  return outcome + (rule and 4 * (subject.place + 65536 * rule.place) or 0)
end

-- objecting returns the first shadow rule that would not have let it start at t.
local function objecting(subjects, t)
  for s = 1, #subjects do
    local subject = subjects[s]
    local rules, cost = subject.rules.shadow, subject.rules.cost
    for r = 1, #rules do
      if cost > rules[r].top or rule_when(subject, rules[r], t, cost) > t then
        return rules[r], subject
      end
    end
  end
end

-- take_all takes the slot t from rules that have a state or a log of their own: a log once
-- for all its rules, and in order, even where what was refused stands in it.
local function take_all(subject, rules, t, cost, refused)
  local pushed
  for r = 1, #rules do
    local rule = rules[r]
    if not rule.kind.logged then
      rule.kind.spend(subject, rule, t, cost, refused)
    elseif rule.side and not (pushed and pushed[rule.side]) then
      pushed = pushed or {}
      pushed[rule.side] = true
      local log = log_of(subject, rule)
      push(log, max(t, log.newest), cost, refused)
    end
  end
end

-- foreign returns the names of the fields that no rule of the subject looks at: other rules
-- did, and may again.
local function foreign(subject)
  if not subject.foreign then
    local names = {}
    for name in pairs(subject.fields) do
      local known = sub(name, 1, 1) == '%'
      for _, rule in ipairs(subject.rules.stateful) do
        known = known or rule.field == name
      end
      if not known then
        names[#names + 1] = name
      end
    end
    subject.foreign = names
  end
  return subject.foreign
end

-- skip tells the fields of other rules that they have not counted the slot t, and so may
-- not give it back.
local function skip(subject, t)
  local names = foreign(subject)
  for i = 1, #names do
    local numbers = numbers_of(subject, names[i])
    numbers[1] = max(numbers[1], t + 1)
  end
end

-- spend takes the slot t from every rule of every subject. Shadow rules have a world of
-- their own: they are spent only if all of them would have let it start. The first that
-- objects is returned, with its subject.
local function spend(subjects, t)
  local objection, whose = objecting(subjects, t)
  for s = 1, #subjects do
    local subject = subjects[s]
    local rules = subject.rules
    local cost = rules.cost
    subject.written = rules.any
    if rules.keep > 0 then
      push(subject, t, cost)
    end
    if rules.stateful ~= none or rules.sides ~= none then
      take_all(subject, rules, t, cost)
      if not objection and rules.shadow ~= none then
        take_all(subject, rules.shadow, t, cost)
      end
    end
    if subject.fields ~= none then
      skip(subject, t)
    end
  end
  return objection, whose
end

-- forget drops the logs on the side and the fields of other rules that nobody can tell
-- from none any more, and returns from when that is so of those that are left.
local function forget(subject, now)
  local full, names = 0, foreign(subject)
  for i = 1, #names do
    local expires = numbers_of(subject, names[i])[2]
    if expires <= now then
      subject.fields[names[i]] = nil
    else
      full = max(full, expires)
    end
  end
  subject.foreign = nil
  for _, side in ipairs({ 'shadow', 'counting' }) do
    if not subject.rules.sides[side] and subject.fields['%' .. side] then
      local log = log_of(subject, { side = side })
      if log.newest + size_of(log).span <= now then
        subject.fields['%' .. side], subject.sides[side] = nil, nil
      else
        full = max(full, log.newest + size_of(log).span)
      end
    end
  end
  return full
end

-- forgotten_at returns from when nobody can tell the state of a subject from none.
local function forgotten_at(subject, now)
  local rules = subject.rules
  local full = subject.newest + (subject.size or rules).span
  if rules.keep == 0 and full <= now then
    subject.slots, subject.entries, subject.long, subject.newest = '', nil, nil, 0
  end
  if rules.sides ~= none then
    for side in pairs(rules.sides) do
      local log = log_of(subject, { side = side })
      full = max(full, log.newest + size_of(log).span)
    end
  end
  local stateful = rules.stateful
  for r = 1, #stateful do
    full = max(full, settle(subject, stateful[r]))
  end
  if subject.fields ~= none then
    full = max(full, forget(subject, now))
  end
  return full
end

-- save writes what was spent, until nobody can tell it from nothing, and MARGIN longer: a
-- Redis in the caller's process may forget a key some milliseconds early.
local function save(subject, now)
  if subject.written then
    write_subject(subject, max(1, ceil((forgotten_at(subject, now) - now) / 1000)) + MARGIN)
    subject.written = false
  end
end
