-- rules: what a limiter is. Prepended to every script that decides.
--
-- A rule answers one question: the earliest instant >= t at which `cost` may start.
-- Several rules on several subjects are one decision: `earliest` finds the instant
-- that satisfies them all, `spend` then takes it from all of them, `save` writes.
--
-- Times are integer microseconds on Redis's clock. They are exact in a Lua number
-- (1.8e15 < 2^53), but only `int` may turn one into text: tostring keeps 14 digits.
--
-- A subject's state is at most two keys, named by the kind of rule, not its numbers:
--   log    list of the slots it was given, newest first: windows and spacings
--   state  hash of one field per other rule: numbers separated by spaces

local function int(n)
  return string.format('%.0f', n)
end

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- slot_at returns the i-th newest slot of the log (0 is the newest), or 0 when it has
-- fewer. Slots spent in this script come first; older ones are read when asked for.
local function slot_at(subject, i)
  local fresh = #subject.fresh
  if i < fresh then
    return subject.fresh[fresh - i]
  end
  i = i - fresh
  if not subject.old[i] then
    subject.old[i] = tonumber(redis.call('LINDEX', subject.log, i) or 0)
  end
  return subject.old[i]
end

-- fields returns the numbers that a rule keeps in the state hash, or nothing.
local function fields(subject, rule)
  if not subject.text[rule.field] then
    subject.text[rule.field] = redis.call('HGET', subject.state, rule.field) or ''
  end
  local numbers = {}
  for number in string.gmatch(subject.text[rule.field], '%S+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  return unpack(numbers)
end

local function set_fields(subject, rule, ...)
  local text = {}
  for i, number in ipairs({...}) do
    text[i] = int(number)
  end
  subject.text[rule.field] = table.concat(text, ' ')
  subject.written[rule.field] = true
end

-- leak_next returns the instant from which a leak allows the next start, as whole
-- microseconds and a remainder in n-ths of one, so that no rate drifts by rounding.
local function leak_next(subject, rule)
  local slot, rest, cost = fields(subject, rule)
  if not slot then
    return 0, 0
  end
  local ticks = math.min(rest, rule.n - 1) + cost * rule.period
  return slot + math.floor(ticks / rule.n), ticks % rule.n
end

local function leak_when(subject, rule, t)
  local at, rest = leak_next(subject, rule)
  return math.max(t, rest > 0 and at + 1 or at)
end

-- kinds holds one table per kind of rule: the only place that knows it. Each has
--   when(subject, rule, t, cost)   the earliest instant >= t
--   spend(subject, rule, t, cost)  take the slot t (kinds in the log: `logged` instead)
--   undo(subject, rule, t, cost)   give the slot t back
--   full(subject, rule)            the instant from which the state equals no state
--   room(subject, rule, t)         how many of cost 1 may start at t
--   most(rule)                     the largest room there can be
--   keep(rule)                     slots of the log that it looks at
local kinds = {}

-- leak: n per period, evenly, nothing saved up. Keeps its last slot and that slot's
-- cost: what follows from them obeys the rate in force now, so a changed rate acts at
-- once. (The leaky bucket as a queue: GCRA with no tolerance, ITU-T I.371.)
kinds.leak = {
  when = leak_when,
  spend = function(subject, rule, t, cost)
    local at, rest = leak_next(subject, rule)
    if t > at + 1 or (t > at and rest == 0) then
      at, rest = t, 0
    end
    set_fields(subject, rule, at, rest, cost)
  end,
  undo = function(subject, rule, t)
    local slot, rest = fields(subject, rule)
    if slot and (slot == t or slot + 1 == t and rest > 0) then
      set_fields(subject, rule, slot, rest, 0)
    end
  end,
  full = function(subject, rule)
    return leak_when(subject, rule, 0)
  end,
  room = function(subject, rule, t)
    return leak_when(subject, rule, t) == t and 1 or 0
  end,
  most = function() return 1 end,
  keep = function() return 0 end,
}

-- window: at most n in any period, exactly: the n-th newest slot must be a period old.
-- (The sliding window log, capped at the n slots that can matter.)
kinds.window = {
  logged = true,
  when = function(subject, rule, t, cost)
    return math.max(t, slot_at(subject, 0), slot_at(subject, rule.n - cost) + rule.period)
  end,
  full = function(subject, rule)
    return slot_at(subject, 0) + rule.period
  end,
  room = function(subject, rule, t)
    local low, high = 0, rule.n
    while low < high do
      local middle = math.floor((low + high) / 2)
      if slot_at(subject, middle) > t - rule.period then
        low = middle + 1
      else
        high = middle
      end
    end
    return rule.n - low
  end,
  most = function(rule) return rule.n end,
  keep = function(rule) return rule.n end,
}

-- spacing: never two closer than the period, whatever they cost.
-- (The minimum difference of ClassDojo's rolling-rate-limiter.)
kinds.spacing = {
  logged = true,
  when = function(subject, rule, t)
    return math.max(t, slot_at(subject, 0) + rule.period)
  end,
  full = function(subject, rule)
    return slot_at(subject, 0) + rule.period
  end,
  room = function(subject, rule, t)
    return slot_at(subject, 0) + rule.period <= t and 1 or 0
  end,
  most = function() return 1 end,
  keep = function() return 1 end,
}

-- parse reads compiled rules: a line each, "kind n period burst flags name".
local function parse(text)
  local rules, seen = { keep = 0 }, {}
  for kind, n, period, burst, flags, name in
      string.gmatch(text or '', '(%S+) (%d+) (%d+) (%d+) (%S+) ([^\n]*)\n') do
    seen[kind] = (seen[kind] or 0) + 1
    local rule = {
      kind = kinds[kind], field = kind .. seen[kind], name = name,
      n = tonumber(n), period = tonumber(period), burst = tonumber(burst),
      drop = string.find(flags, 'd', 1, true) ~= nil,
    }
    rules[#rules + 1] = rule
    rules.keep = math.max(rules.keep, rule.kind.keep(rule))
  end
  return rules
end

local function new_subject(log, state, rules)
  return { log = log, state = state, rules = rules, fresh = {}, old = {}, text = {}, written = {} }
end

-- earliest returns the first instant >= t at which every deferring rule of every
-- subject lets `cost` start, with the rule and the subject that moved it last. Rules
-- may answer later for a later t, so it asks until none moves it any more.
local function earliest(subjects, t, cost)
  local binding, whose
  repeat
    local before = t
    for _, subject in ipairs(subjects) do
      for _, rule in ipairs(subject.rules) do
        if not rule.drop then
          local at = rule.kind.when(subject, rule, t, cost)
          if at > t then
            t, binding, whose = at, rule, subject
          end
        end
      end
    end
  until t == before
  return t, binding, whose
end

-- refusing returns the first rule that drops rather than defers what starts at t.
local function refusing(subjects, t, cost)
  for _, subject in ipairs(subjects) do
    for _, rule in ipairs(subject.rules) do
      if rule.drop and rule.kind.when(subject, rule, t, cost) > t then
        return rule, subject
      end
    end
  end
end

-- spend takes the slot t from every rule of every subject.
local function spend(subjects, t, cost)
  for _, subject in ipairs(subjects) do
    for _, rule in ipairs(subject.rules) do
      if not rule.kind.logged then
        rule.kind.spend(subject, rule, t, cost)
      end
    end
    if subject.rules.keep > 0 then
      for _ = 1, cost do
        subject.fresh[#subject.fresh + 1] = t
      end
    end
  end
end

-- expire keeps a key until its rules cannot tell it from none, rounded up.
local function expire(key, full, now)
  redis.call('PEXPIRE', key, math.max(1, math.ceil((full - now) / 1000)))
end

-- save writes what `spend` has taken and sets the expiry of what it wrote.
local function save(subject, now)
  local logged, stated = 0, 0
  for _, rule in ipairs(subject.rules) do
    local full = rule.kind.full(subject, rule)
    if rule.kind.logged then
      logged = math.max(logged, full)
    else
      stated = math.max(stated, full)
    end
  end
  local written = false
  for field in pairs(subject.written) do
    redis.call('HSET', subject.state, field, subject.text[field])
    written = true
  end
  if written then
    expire(subject.state, stated, now)
  end
  local fresh = #subject.fresh
  if fresh > 0 then
    for i = math.max(1, fresh - subject.rules.keep + 1), fresh do
      redis.call('LPUSH', subject.log, int(subject.fresh[i]))
    end
    redis.call('LTRIM', subject.log, 0, subject.rules.keep - 1)
    expire(subject.log, logged, now)
  end
end
