-- kinds: what each kind of rule does. Stands between state.lua, which keeps what they
-- remember, and rules.lua, which lets them decide together.
--
-- Products of a cost and a period may not be exact in a Lua number, so `advance` never
-- forms one. It uses the rule's step, its period / n in whole microseconds, and what is odd.

-- advance moves an instant, whole microseconds and a remainder in n-ths of one, by the
-- time that the rule's rate takes for `cost`, so that no rate drifts by rounding.
local function advance(rule, at, rest, cost)
  if rest == 0 and rule.odd == 0 then
    return at + cost * rule.step, 0
  end
  local ticks = rest + cost * rule.odd
  return at + cost * rule.step + floor(ticks / rule.n), ticks % rule.n
end

local function round_up(at, rest)
  return rest > 0 and at + 1 or at
end

-- is_later tells whether the first instant, with its remainder, lies behind the second.
local function is_later(at, rest, than, part)
  return at > than or at == than and rest > part
end

-- kinds holds one table per kind of rule, made when it is first asked for, and is the
-- only place that knows it. Each has
--   when(subject, rule, t, cost)   the earliest instant >= t; cost <= rule.top
--   full(subject, rule)            the instant from which the state equals no state
-- and those that are not `logged` (windows and spacings are: log_of, refund) also have
--   spend(subject, rule, t, cost)  take the slot t, or count what was refused at t
--   undo(subject, rule, t, cost)   give the slot t back
local make = {}
local kinds = setmetatable({}, { __index = function(made, kind)
  made[kind] = make[kind]()
  return made[kind]
end })

-- leak: n per period, evenly, nothing saved up. Keeps its last slot and that slot's
-- cost: what follows from them obeys the rate in force now, so a changed rate acts at
-- once. (The leaky bucket as a queue: GCRA with no tolerance, ITU-T I.371.)
function make.leak()
  local function next_turn(subject, rule)
    local slot, rest, cost = fields(subject, rule)
    if not slot then
      return 0, 0
    end
    return advance(rule, slot, min(rest, rule.n - 1), cost)
  end
  local function when(subject, rule, t)
    return max(t, round_up(next_turn(subject, rule)))
  end
  return {
    when = when,
    full = function(subject, rule)
      return when(subject, rule, 0)
    end,
    spend = function(subject, rule, t, cost)
      local at, rest = next_turn(subject, rule)
      local turn = round_up(at, rest)
      local from, part = advance(rule, t, 0, cost)
      if t > turn or t < turn and is_later(from, part, at, rest) then
        at, rest = t, 0
      end
      if t >= turn or at == t then
        set_fields(subject, rule, at, rest, cost)
      end
    end,
    -- Only the newest slot comes back: what follows an older one stays where it is.
    undo = function(subject, rule, t, cost)
      local slot, rest, spent = fields(subject, rule)
      if slot and round_up(slot, rest) == t and spent == cost then
        set_fields(subject, rule, slot, rest, 0)
      end
    end,
  }
end

-- token_bucket: burst tokens, n more per period. Keeps the instant at which the bucket
-- will be full again, and its two newest slots: the newest bounds that instant when the
-- rate has changed, and both bound what a refund may give. (GCRA.)
function make.token_bucket()
  local function bucket(subject, rule)
    local tat, rest, last, before = fields(subject, rule)
    if not tat then
      return 0, 0, 0, 0
    end
    local latest, part = advance(rule, last, 0, rule.burst)
    rest = min(rest, rule.n - 1)
    if is_later(tat, rest, latest, part) then
      tat, rest = latest, part
    end
    return tat, rest, last, before
  end
  return {
    when = function(subject, rule, t, cost)
      local tat, rest = bucket(subject, rule)
      return max(t, round_up(advance(rule, tat, rest, cost - rule.burst)))
    end,
    full = function(subject, rule)
      return round_up(bucket(subject, rule))
    end,
    spend = function(subject, rule, t, cost)
      local tat, rest, last, before = bucket(subject, rule)
      if tat < t then
        tat, rest = t, 0
      end
      tat, rest = advance(rule, tat, rest, cost)
      set_fields(subject, rule, tat, rest, max(last, t), max(before, min(last, t)))
    end,
    -- The bucket may have been full between t and the newest slot, and what overflowed
    -- then is not there to give back: that much less.
    undo = function(subject, rule, t, cost)
      local tat, rest, last, before = bucket(subject, rule)
      if tat == 0 or t > last then
        return
      end
      local at, part = advance(rule, tat + last - t, rest, -cost)
      if is_later(at, part, tat, rest) then
        at, part = tat, rest
      end
      set_fields(subject, rule, at, part, t == last and before or last, before)
    end,
  }
end

-- window: at most n in any period, exactly: the n-th newest slot must be a period old.
-- (The sliding window log, capped at the n slots that can matter.)
function make.window()
  return {
    logged = true,
    when = function(subject, rule, t, cost)
      local log = rule.side and log_of(subject, rule) or subject
      local newest, period = log.newest, rule.period
      if newest + period <= t then
        return t
      end
      local free = slot_at(log, rule.n - cost) + period
      if newest > free then
        free = newest
      end
      return free > t and free or t
    end,
    full = function(subject, rule)
      return log_of(subject, rule).newest + rule.period
    end,
  }
end

-- spacing: never two closer than the period, whatever they cost.
-- (The minimum difference of ClassDojo's rolling-rate-limiter.)
function make.spacing()
  return {
    logged = true,
    when = function(subject, rule, t)
      local log = rule.side and log_of(subject, rule) or subject
      local free = log.newest + rule.period
      return free > t and free or t
    end,
    full = function(subject, rule)
      return log_of(subject, rule).newest + rule.period
    end,
  }
end

-- fixed_window: at most n in each period since the epoch. Keeps the start of the newest
-- window that was used, and its count.
function make.fixed_window()
  local function window(subject, rule)
    local start, count = fields(subject, rule)
    return floor((start or 0) / rule.period), count or 0
  end
  return {
    when = function(subject, rule, t, cost)
      local number, count = window(subject, rule)
      if count + cost > rule.n then
        number = number + 1
      end
      return max(t, number * rule.period)
    end,
    full = function(subject, rule)
      return (window(subject, rule) + 1) * rule.period
    end,
    spend = function(subject, rule, t, cost)
      local number, count = window(subject, rule)
      if floor(t / rule.period) > number then
        number, count = floor(t / rule.period), 0
      end
      set_fields(subject, rule, number * rule.period, min(rule.n, count + cost))
    end,
    undo = function(subject, rule, t, cost)
      local number, count = window(subject, rule)
      if floor(t / rule.period) == number then
        set_fields(subject, rule, number * rule.period, max(0, count - cost))
      end
    end,
  }
end

-- sliding_counter: counts of the newest buckets, newest first, behind the start of the
-- newest. Two buckets are this period and the one before, which counts by how much of
-- it overlaps the rolling period; more are parts of one period and count in full.
function make.sliding_counter()
  local function length(rule)
    return rule.burst == 2 and rule.period or ceil(rule.period / rule.burst)
  end
  local function ring(subject, rule)
    local counts = { fields(subject, rule) }
    local number = floor((table.remove(counts, 1) or 0) / length(rule))
    return number, counts
  end
  local function set_ring(subject, rule, number, counts)
    set_fields(subject, rule, number * length(rule), unpack(counts))
  end
  -- weighted returns the first instant >= t of the bucket `number` at which `room` is
  -- left beside what still overlaps of the `old` ones before, or nothing.
  local function weighted(rule, t, number, room, old)
    local wait = 0
    if room < 0 then
      return nil
    elseif old > room then
      wait = rule.period - room * floor(rule.period / old)
        - floor(room * (rule.period % old) / old)
    end
    if wait < rule.period then
      return max(t, number * rule.period + wait)
    end
  end
  return {
    when = function(subject, rule, t, cost)
      local newest, counts = ring(subject, rule)
      local size = length(rule)
      local number = max(newest, floor(t / size))
      while number < newest + rule.burst do
        local first = newest - number
        local at
        if rule.burst == 2 then
          at = weighted(rule, t, number, rule.n - cost - (counts[first + 1] or 0), counts[first + 2] or 0)
        else
          local room = rule.n - cost
          for i = max(1, first + 1), first + rule.burst do
            room = room - (counts[i] or 0)
          end
          at = room >= 0 and max(t, number * size)
        end
        if at then
          return at
        end
        number = number + 1
      end
      return max(t, number * size)
    end,
    full = function(subject, rule)
      return (ring(subject, rule) + rule.burst) * length(rule)
    end,
    spend = function(subject, rule, t, cost)
      local newest, counts = ring(subject, rule)
      local number = max(newest, floor(t / length(rule)))
      local moved = {}
      for i = 1, rule.burst do
        moved[i] = counts[i - (number - newest)] or 0
      end
      moved[1] = min(rule.n, moved[1] + cost)
      set_ring(subject, rule, number, moved)
    end,
    undo = function(subject, rule, t, cost)
      local newest, counts = ring(subject, rule)
      local i = newest - floor(t / length(rule)) + 1
      if counts[i] then
        counts[i] = max(0, counts[i] - cost)
        set_ring(subject, rule, newest, counts)
      end
    end,
  }
end
