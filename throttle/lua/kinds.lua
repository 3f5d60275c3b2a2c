-- kinds: what each kind of rule does. Stands between state.lua, which keeps what they
-- remember, and ramp.lua and warmup.lua, which have two more. Package internal/rules does the
-- same in Go, and decides alike.
--
-- Products of a cost and a period may not be exact in a Lua number, so `advance` never
-- forms one. It uses the rule's step, its period / n in whole microseconds, and what is odd.

-- advance moves an instant, whole microseconds and a remainder in n-ths of one, by the
-- time that the rule's rate takes for `cost`, so that no rate drifts by rounding. It ends
-- where time does.
local function advance(rule, at, rest, cost)
  if cost >= rule.far then
    return NEVER, 0
  elseif cost <= -rule.far then
    return 0, 0
  end
  at = at + cost * rule.step
  if rest ~= 0 or rule.odd ~= 0 then
    local ticks = rest + cost * rule.odd
    at, rest = at + floor(ticks / rule.n), ticks % rule.n
  end
  if at >= NEVER then
    return NEVER, 0
  end
  return at, rest
end

local function round_up(at, rest)
  return rest > 0 and at + 1 or at
end

-- is_later tells whether the first instant, with its remainder, lies behind the second.
local function is_later(at, rest, than, part)
  return at > than or at == than and rest > part
end

-- counted adds a cost to a count. What was refused fills it up to n and no further.
local function counted(count, cost, n, refused)
  if refused then
    return max(count, min(n, count + cost))
  end
  return min(count + cost, 1000000000)
end

-- kinds holds one table per kind of rule, made when it is first asked for, and is the
-- only place that knows it. Each has
--   when(subject, rule, t, cost)   the earliest instant >= t; cost <= rule.top
--   full(subject, rule)            the instant from which the state equals no state
--   reached(subject, rule)         the instant from which on it admits what it has left
-- and those that are not `logged` (windows and spacings are: log_of, refund) also have
--   spend(subject, rule, t, cost, refused)  take the slot t, or count what was refused at t
--   undo(subject, rule, t, cost)            give the slot t back, if it was counted
local make = {}
local kinds = setmetatable({}, { __index = function(made, kind)
  made[kind] = make[kind]()
  return made[kind]
end })

-- next_turn returns the instant from which a leak lets the next action start.
local function next_turn(subject, rule)
  local slot, rest, cost = fields(subject, rule)
  if not slot then
    return 0, 0
  end
  return advance(rule, slot, min(rest, rule.n - 1), cost)
end

-- leak: n per period, evenly, nothing saved up. Keeps its last slot and that slot's cost, and
-- when a ramp began that it had before. What follows from them obeys the rate in force now, so a
-- changed rate acts at once. (The leaky bucket as a queue: GCRA with no tolerance, ITU-T I.371.)
function make.leak()
  return {
    when = function(subject, rule, t)
      return max(t, round_up(next_turn(subject, rule)))
    end,
    reached = function(subject, rule)
      return (fields(subject, rule)) or 0
    end,
    -- It lies behind the turn as long as a start at the turn would carry its fraction on.
    full = function(subject, rule)
      local at, rest = next_turn(subject, rule)
      return rest > 0 and at + 2 or at
    end,
    spend = function(subject, rule, t, cost)
      local _, _, _, began = fields(subject, rule)
      local at, rest = next_turn(subject, rule)
      local turn = round_up(at, rest)
      if t > turn then
        at, rest = t, 0
      elseif t < turn then
        local from, part = advance(rule, t, 0, cost)
        if is_later(from, part, at, rest) then
          at, rest = t, 0
        end
      end
      if t >= turn or at == t then
        set_fields(subject, rule, t, at, rest, cost, began)
      end
    end,
    -- Only the newest slot comes back: what follows an older one stays where it is.
    undo = function(subject, rule, t, cost)
      local slot, rest, spent, began = fields(subject, rule)
      if slot and round_up(slot, rest) == t and spent == cost then
        set_fields(subject, rule, t, slot, rest, 0, began)
      end
    end,
  }
end

-- token_bucket: burst tokens, n more per period. Keeps the instant at which the bucket
-- will be full again, the pace (n and period) that this was reckoned by, and its two newest
-- slots, which bound what a refund may give. (GCRA.)
function make.token_bucket()
  -- full_at returns the instant at which the bucket will be full. Tokens that were missing
  -- at the newest slot under another pace are still missing, and come back at the pace in
  -- force: a change of rules mints none.
  local function full_at(subject, rule)
    local tat, rest, last, _, n, period = fields(subject, rule)
    if not tat then
      return 0, 0
    elseif n == rule.n and period == rule.period or tat <= last then
      return tat, min(rest, rule.n - 1)
    end
    return advance(rule, last, 0, min(ceil((round_up(tat, rest) - last) * n / period), 1000000000))
  end
  local function set_bucket(subject, rule, tat, rest, last, before)
    local _, _, newest, _, n, period = fields(subject, rule)
    set_fields(subject, rule, last, tat, rest, last, before, rule.n, rule.period)
    if n and (n ~= rule.n or period ~= rule.period) then
      local numbers = numbers_of(subject, rule.field) -- tokens came in at another pace before
      numbers[1] = max(numbers[1], newest, last)
    end
  end
  return {
    when = function(subject, rule, t, cost)
      local _, _, last = fields(subject, rule)
      if not last then
        return t
      end
      local tat, rest = full_at(subject, rule)
      local empty, odd = advance(rule, last, 0, rule.burst)
      if is_later(tat, rest, empty, odd) then
        tat, rest = empty, odd -- a bucket that became smaller lacks at most all its tokens
      end
      return max(t, round_up(advance(rule, tat, rest, cost - rule.burst)))
    end,
    full = function(subject, rule)
      return round_up(full_at(subject, rule))
    end,
    reached = function(subject, rule)
      local _, _, last = fields(subject, rule)
      return last or 0
    end,
    -- What was refused takes no more tokens than there are in a bucket.
    spend = function(subject, rule, t, cost, refused)
      local had, part = full_at(subject, rule)
      local _, _, last, before = fields(subject, rule)
      local tat, rest = had, part
      last, before = last or 0, before or 0
      if tat < t then
        tat, rest = t, 0
      end
      tat, rest = advance(rule, tat, rest, cost)
      if refused then
        local empty, odd = advance(rule, max(last, t), 0, rule.burst)
        if is_later(tat, rest, empty, odd) then
          tat, rest = empty, odd
        end
        if is_later(had, part, tat, rest) then
          tat, rest = had, part
        end
      end
      set_bucket(subject, rule, tat, rest, max(last, t), max(before, min(last, t)))
    end,
    -- The bucket may have been full between t and the newest slot, and what overflowed
    -- then is not there to give back: that much less.
    undo = function(subject, rule, t, cost)
      local tat, rest, last, before, n, period = fields(subject, rule)
      if not tat or t < counts_since(subject, rule) or t > last
        or t < last and (n ~= rule.n or period ~= rule.period) then
        return
      end
      tat, rest = full_at(subject, rule)
      local at, part = advance(rule, tat + last - t, rest, -cost)
      if is_later(at, part, tat, rest) then
        at, part = tat, rest
      end
      set_bucket(subject, rule, max(at, 0), part, last, before)
      if t == last and before >= counts_since(subject, rule) then
        numbers_of(subject, rule.field)[5] = before
      end
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
    reached = function(subject, rule)
      return log_of(subject, rule).newest
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
    reached = function(subject, rule)
      return log_of(subject, rule).newest
    end,
  }
end

-- period_of returns when the period of a rule began that contains t, and when it ends. The periods of a calendar are those whose begins the
-- caller has told: the last one never ends.
local function period_of(rule, t)
  local begins = rule.begins
  if not begins then
    local first = t - t % rule.period
    return first, first + rule.period
  end
  for i = #begins, 1, -1 do
    if t >= begins[i] then
      return begins[i], begins[i + 1] or NEVER
    end
  end
  return 0, begins[1]
end

-- fixed_window: at most n in each period since the epoch. Keeps its newest slot, and the
-- count of that slot's period.
function make.fixed_window()
  local function window(subject, rule)
    local last, count = fields(subject, rule)
    return last or 0, count or 0
  end
  return {
    when = function(subject, rule, t, cost)
      local last, count = window(subject, rule)
      local first, finish = period_of(rule, last)
      return max(t, count + cost > rule.n and finish or first)
    end,
    full = function(subject, rule)
      local last = fields(subject, rule)
      local _, finish = period_of(rule, last or 0)
      return last and finish or 0
    end,
    reached = function(subject, rule)
      return (period_of(rule, fields(subject, rule) or 0))
    end,
    spend = function(subject, rule, t, cost, refused)
      local last, count = window(subject, rule)
      local _, finish = period_of(rule, last)
      if t >= finish then
        count = 0
      end
      set_fields(subject, rule, t, max(last, t), counted(count, cost, rule.n, refused))
    end,
    undo = function(subject, rule, t, cost)
      local last, count = window(subject, rule)
      local first, finish = period_of(rule, last)
      if t >= first and t < finish and t >= counts_since(subject, rule) then
        set_fields(subject, rule, t, last, max(0, count - cost))
      end
    end,
  }
end

-- calendar: at most n in each day, week or month of a zone.
function make.calendar()
  return make.fixed_window()
end

-- sliding_counter: counts of the newest buckets, newest first, behind the newest slot. Two
-- buckets are this period and the one before, which counts by how much of it overlaps the
-- rolling period; more are parts of one period and count in full.
function make.sliding_counter()
  local function length(rule)
    return rule.burst == 2 and rule.period or ceil(rule.period / rule.burst)
  end
  -- ring returns the number of the newest bucket, the counts, and the newest slot.
  local function ring(subject, rule)
    local counts = { fields(subject, rule) }
    local last = table.remove(counts, 1) or 0
    return floor(last / length(rule)), counts, last
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
      return fields(subject, rule) and (ring(subject, rule) + rule.burst) * length(rule) or 0
    end,
    reached = function(subject, rule)
      return ring(subject, rule) * length(rule)
    end,
    -- A ring does not shrink: a rule that is changed for a moment must not make it forget.
    spend = function(subject, rule, t, cost, refused)
      local newest, counts, last = ring(subject, rule)
      local number = max(newest, floor(t / length(rule)))
      local moved = {}
      for i = 1, max(rule.burst, #counts) do
        moved[i] = counts[i - (number - newest)] or 0
      end
      moved[1] = counted(moved[1], cost, rule.n, refused)
      set_fields(subject, rule, t, max(last, t), unpack(moved))
    end,
    undo = function(subject, rule, t, cost)
      local newest, counts, last = ring(subject, rule)
      local i = newest - floor(t / length(rule)) + 1
      if (counts[i] or 0) == 0 or t < counts_since(subject, rule) then
        return
      end
      counts[i] = max(0, counts[i] - cost)
      set_fields(subject, rule, t, last, unpack(counts))
    end,
  }
end
