-- ramp: a leak whose rate grows. Stands between kinds.lua and warmup.lua. Package internal/rules does the same in Go
-- (ramp.go).

-- ramp: after it has stood still for longer than the ramp takes, it begins with a tenth of its rate, which grows evenly until
-- the ramp is over. It stands still from the instant on at which the next action may start. Beside what a leak keeps it keeps
-- when the ramp began: a leak that had none so far goes on at its whole rate.
function make.ramp()
  -- The part of the rate with which a ramp begins, by how much it grows, the mean of it, and the square of the first: each the number
  -- that Go has for it, to the last digit.
  local BEGINS, GROWS, MEAN, SQUARE = 0.1, 0.9, 0.55, 0.01

  -- grows_to returns when so many units have started that follow those of some time since a ramp began. How much may start in a
  -- time x is b*x + (1-b)*x^2/2w, of a ramp of length w that begins with the part b of its rate. It is told in time at the whole
  -- rate.
  local function grows_to(rule, began, passed, units)
    local w, x = rule.ramp, passed
    local whole = MEAN * w
    local due = whole + x - w
    if x < w then
      due = BEGINS * x + GROWS * x * x / (2 * w)
    end
    due = due + units * (rule.period / rule.n)
    if due > whole then
      x = w + due - whole
    else
      x = (math.sqrt(SQUARE + 2 * GROWS * due / w) - BEGINS) * w / GROWS
    end
    if x >= NEVER - began then
      return NEVER
    end
    return began + ceil(x)
  end

  -- kept returns what is remembered: the last slot and its rest, its cost, and when the ramp began.
  local function kept(subject, rule)
    local last, rest, cost, began = fields(subject, rule)
    return last, rest, cost, began or 0
  end

  -- turn_of is next_turn for a leak with a ramp.
  local function turn_of(subject, rule)
    local last, _, cost, began = kept(subject, rule)
    if last and last - began < rule.ramp then
      return grows_to(rule, began, last - began, cost), 0
    end
    return next_turn(subject, rule)
  end

  return {
    when = function(subject, rule, t)
      return max(t, round_up(turn_of(subject, rule)))
    end,
    reached = kinds.leak.reached,
    -- It lies a ramp behind the turn: until then an action would go on with the ramp.
    full = function(subject, rule)
      return min(round_up(turn_of(subject, rule)) + rule.ramp + 2, NEVER)
    end,
    spend = function(subject, rule, t, cost)
      local at, rest = turn_of(subject, rule)
      local turn = round_up(at, rest)
      local last, part, spent, began = kept(subject, rule)
      if not last or t > turn + rule.ramp then -- it has stood still
        set_fields(subject, rule, t, t, 0, cost, t)
      elseif t > turn then
        set_fields(subject, rule, t, t, 0, cost, began)
      elseif t == turn then
        set_fields(subject, rule, t, at, rest, cost, began)
      else -- before its turn
        set_fields(subject, rule, t, last, part, min(spent + cost, 1000000000), began)
      end
    end,
    -- Only the newest slot comes back. A ramp that began with it has not begun: the leak stands still since before.
    undo = function(subject, rule, t, cost)
      local last, rest, spent, began = kept(subject, rule)
      if not last or round_up(last, rest) ~= t or spent ~= cost then
        return
      end
      if began == t then
        began = t - rule.ramp - 1
        last = began
      end
      set_fields(subject, rule, t, last, rest, 0, began)
    end,
  }
end
