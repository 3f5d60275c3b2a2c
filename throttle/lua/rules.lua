-- rules: how rules decide together. Stands behind kinds.lua in every script.
--
-- A rule answers one question: the earliest instant >= t at which `cost` may start.
-- Several rules on several subjects are one decision: `earliest` finds the instant
-- that satisfies them all, `spend` then takes it from all of them, `save` writes.

local none = {}

-- new_rule makes a rule of a compiled one. Its cost never counts as more than `top`,
-- the most that it can ever admit: a rule tightened below a waiting cost lets that
-- start alone, rather than never.
local function new_rule(compiled, place, seen)
  local kind, flags = compiled[1], compiled[5]
  local rule = {
    kind = kinds[kind], place = place, name = compiled[6], field = kind,
    n = compiled[2], period = compiled[3], burst = compiled[4], top = compiled[2],
    drop = false, shadow = false, counts = false, side = false,
  }
  if kind == 'leak' or kind == 'spacing' then
    rule.top = math.huge
  elseif kind == 'token_bucket' then
    rule.top = rule.burst
  end
  if flags ~= '-' then
    rule.drop = string.find(flags, 'd', 1, true) ~= nil
    rule.shadow = string.find(flags, 's', 1, true) ~= nil
    rule.counts = string.find(flags, 'c', 1, true) ~= nil and not rule.shadow
    rule.side = rule.shadow and 'shadow' or rule.counts and 'counting'
  end
  if not rule.kind.logged then
    local field = rule.shadow and 'shadow:' .. kind or kind
    seen[field] = (seen[field] or 0) + 1
    rule.field = field .. seen[field]
  end
  return rule
end

-- make_rules makes rules of compiled ones: a list of {kind, n, period, burst, flags, name}.
-- Shadow rules stand apart, in rules.shadow. rules.keep and rules.span, and those of
-- rules.sides, say how many slots the rules look at (one more, so that a log which has
-- forgotten some can be told from one which has not), and for how long.
local function make_rules(compiled)
  local rules, seen = { keep = 0, span = 0, drops = false, counts = false, shadow = false, sides = false }, {}
  for place, one in ipairs(compiled) do
    local rule = new_rule(one, place, seen)
    local size = rules
    if rule.side then
      rules.sides = rules.sides or {}
      rules.sides[rule.side] = rules.sides[rule.side] or { keep = 0, span = 0 }
      size = rules.sides[rule.side]
    end
    if rule.kind.logged then
      size.keep = max(size.keep, rule.n + 1)
      size.span = max(size.span, rule.period)
    end
    if rule.shadow then
      rules.shadow = rules.shadow or {}
      rules.shadow[#rules.shadow + 1] = rule
    else
      rules[#rules + 1] = rule
      rules.drops, rules.counts = rules.drops or rule.drop, rules.counts or rule.counts
    end
  end
  return rules
end

-- parse reads compiled rules, which are JSON.
local function parse(compiled)
  return make_rules(compiled and compiled ~= '' and cjson.decode(compiled) or none)
end

-- new_subject returns a subject under its rules. It is a log as well: its own.
local function new_subject(log, state, rules)
  return {
    log = log, size = rules, missing = math.huge, newest = nil, old = nil, fresh = nil,
    state = state, rules = rules,
  }
end

-- logged returns the subject as it would be with only those rules that look at a log.
local function logged(subject)
  local all = subject.rules
  local rules = { keep = all.keep, span = all.span, drops = all.drops, counts = all.counts, sides = all.sides }
  for _, rule in ipairs(all) do
    if rule.kind.logged then
      rules[#rules + 1] = rule
    end
  end
  return new_subject(subject.log, subject.state, rules)
end

-- rule_when asks one rule: cost above what it can ever admit counts as all of that.
local function rule_when(subject, rule, t, cost)
  return rule.kind.when(subject, rule, t, cost < rule.top and cost or rule.top)
end

-- earliest returns the first instant >= t at which every deferring rule of every
-- subject lets `cost` start, with the rule and the subject that moved it last. What a
-- rule allows at an instant it allows at every later one, as long as nothing is spent:
-- so the latest of their answers suits them all, and nobody needs to be asked again.
local function earliest(subjects, t, cost)
  local binding, whose
  for s = 1, #subjects do
    local subject = subjects[s]
    local rules = subject.rules
    for r = 1, #rules do
      local rule = rules[r]
      if not rule.drop then
        local at = rule.kind.when(subject, rule, t, cost < rule.top and cost or rule.top)
        if at > t then
          t, binding, whose = at, rule, subject
        end
      end
    end
  end
  return t, binding, whose
end

-- refusing returns the first rule that drops rather than defers what starts at t.
local function refusing(subjects, t, cost)
  for s = 1, #subjects do
    local subject = subjects[s]
    if subject.rules.drops ~= false then
      for _, rule in ipairs(subject.rules) do
        if rule.drop and rule_when(subject, rule, t, cost) > t then
          return rule, subject
        end
      end
    end
  end
end

-- objecting returns the first shadow rule that would not have let it start at t.
local function objecting(subjects, t, cost)
  for s = 1, #subjects do
    local subject = subjects[s]
    if subject.rules.shadow then
      for _, rule in ipairs(subject.rules.shadow) do
        if cost > rule.top or rule_when(subject, rule, t, cost) > t then
          return rule, subject
        end
      end
    end
  end
end

-- room returns how many of cost 1 the rule lets start at t, found by asking.
local function room(subject, rule, t)
  if rule.kind.when(subject, rule, t, 1) > t then
    return 0
  end
  local low, high = 1, rule.top
  if high == math.huge then
    return 1
  end
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if rule.kind.when(subject, rule, t, middle) > t then
      high = middle - 1
    else
      low = middle
    end
  end
  return low
end

-- push puts slots before the log: no more than it keeps.
local function push(log, t, cost)
  if log.size.keep > 0 then
    log.fresh = log.fresh or {}
    for _ = 1, min(cost, log.size.keep) do
      log.fresh[#log.fresh + 1] = t
    end
  end
end

-- take spends one rule; the slots of logs are pushed once for all their rules.
local function take(subject, rule, t, cost)
  if not rule.kind.logged then
    rule.kind.spend(subject, rule, t, cost)
  elseif rule.side then
    local log = log_of(subject, rule)
    if log.spent ~= subject.spends then
      log.spent = subject.spends
      push(log, max(t, slot_at(log, 0)), cost)
    end
  end
end

-- spend takes the slot t from every rule of every subject. Shadow rules have a world of
-- their own: they are spent only if all of them would have let it start. The first that
-- objects is returned, with its subject.
local function spend(subjects, t, cost)
  local objection, whose = objecting(subjects, t, cost)
  for _, subject in ipairs(subjects) do
    push(subject, t, cost)
    if subject.rules.sides then
      subject.spends = (subject.spends or 0) + 1
    end
    for _, rule in ipairs(subject.rules) do
      take(subject, rule, t, cost)
    end
    for _, rule in ipairs(not objection and subject.rules.shadow or none) do
      take(subject, rule, t, cost)
    end
  end
  return objection, whose
end

-- spend_refused counts what was refused at t in the rules that count that. True when
-- there are any, and so something to save.
local function spend_refused(subjects, t, cost)
  local counted = false
  for _, subject in ipairs(subjects) do
    if subject.rules.counts then
      counted = true
      subject.spends = (subject.spends or 0) + 1
      for _, rule in ipairs(subject.rules) do
        if rule.counts then
          take(subject, rule, t, cost)
        end
      end
    end
  end
  return counted
end

-- expire keeps a key until its rules cannot tell it from none, rounded up.
local function expire(key, full, now)
  call('PEXPIRE', key, text(max(1, math.ceil((full - now) / 1000))))
end

local function save_log(log, now)
  if not log.fresh then
    return
  end
  local fresh, keep = #log.fresh, log.size.keep
  local length
  for i = max(1, fresh - keep + 1), fresh do
    length = call('LPUSH', log.log, text(log.fresh[i]))
  end
  if length > keep then
    call('LTRIM', log.log, '0', text(keep - 1))
  end
  expire(log.log, log.fresh[fresh] + log.size.span, now)
end

local function save_state(subject, now)
  for field in pairs(subject.written) do
    local texts = {}
    for i, number in ipairs(subject.fields[field]) do
      texts[i] = text(number)
    end
    call('HSET', subject.state, field, table.concat(texts, ' '))
  end
  local full = now
  for _, rules in ipairs({ subject.rules, subject.rules.shadow or none }) do
    for _, rule in ipairs(rules) do
      if not rule.kind.logged then
        full = max(full, rule.kind.full(subject, rule))
      end
    end
  end
  expire(subject.state, full, now)
end

-- save writes what was spent and sets the expiry of what it wrote. Once per subject.
local function save(subject, now)
  save_log(subject, now)
  for _, log in pairs(subject.sides or none) do
    save_log(log, now)
  end
  if subject.written then
    save_state(subject, now)
  end
end

-- refund_log takes the slot t out of a log. What the log has forgotten was, at its newest
-- slot, out of every rule's sight; it stands in with the latest slot that it can have been.
local function refund_log(log, t, cost, now, counting)
  local length = call('LLEN', log.log)
  local newest = slot_at(log, 0)
  local oldest = slot_at(log, max(0, length - 1))
  local removed = call('LREM', log.log, text(min(cost, log.size.keep)), text(t))
  if removed == 0 then
    return
  end
  if length >= log.size.keep then
    local latest = counting and oldest or min(oldest, newest - log.size.span)
    for _ = 1, removed do
      call('RPUSH', log.log, text(latest))
    end
  end
  log.newest, log.old, log.missing = nil, nil, math.huge
  if slot_at(log, 0) > 0 then
    expire(log.log, slot_at(log, 0) + log.size.span, now)
  end
end

-- refund_logs takes the slot t out of the logs of a subject, and saves them. The log of
-- shadow rules never had it if one of them objected.
local function refund_logs(subject, t, cost, now, objected)
  if subject.size.keep > 0 then
    refund_log(subject, t, cost, now)
  end
  for side, size in pairs(subject.rules.sides or none) do
    if size.keep > 0 and not (objected and side == 'shadow') then
      refund_log(log_of(subject, { side = side }), t, cost, now, side == 'counting')
    end
  end
end

-- refund gives the unused slot t back to every rule that was spent at it, and saves.
local function refund(subjects, t, cost, now, objected)
  for _, subject in ipairs(subjects) do
    refund_logs(subject, t, cost, now, objected)
    for _, rules in ipairs({ subject.rules, not objected and subject.rules.shadow or none }) do
      for _, rule in ipairs(rules) do
        if not rule.kind.logged then
          rule.kind.undo(subject, rule, t, cost)
        end
      end
    end
    if subject.written then
      save_state(subject, now)
    end
  end
end
