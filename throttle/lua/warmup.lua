-- warmup: windows that become others on some days. Stands between ramp.lua and rules.lua. Package internal/rules does the same
-- in Go (warmup.go).
--
-- A warm-up comes with all its windows, of which each is a rule. So which of them holds is told by Redis's clock, and not by the
-- caller's.

-- stages_of returns the windows of a warm-up as rules: each holds from an instant on, and has no slots from another one on.
local function stages_of(rule, told)
  local stages = {}
  for i, one in ipairs(told) do
    stages[i] = {
      kind = rule.begins and kinds.calendar or kinds.window, field = rule.field, side = rule.side, begins = rule.begins,
      from = one[1], till = one[2], n = one[3], period = one[4],
    }
  end
  return stages
end

-- stage_at returns the window of a warm-up that holds at t, and which one that is. The first one holds before, too.
local function stage_at(rule, t)
  local stages, i = rule.stages, 1
  while stages[i + 1] and t >= stages[i + 1].from do
    i = i + 1
  end
  return stages[i], i
end

-- warmup: a window that becomes another one on some days. All of them look at one log.
function make.warmup()
  local function admits(stages, i, cost)
    for k = i, #stages do
      if stages[k].n >= cost then
        return true
      end
    end
    return false
  end
  return {
    logged = true,
    -- A cost that only a later window admits waits for it.
    when = function(subject, rule, t, cost)
      local stages = rule.stages
      local stage, i = stage_at(rule, t)
      while true do
        local following = stages[i + 1]
        if stage.n >= cost or not admits(stages, i + 1, cost) then
          local at = stage.kind.when(subject, stage, t, min(cost, stage.n))
          if not following or at < stage.till then
            return at
          end
        end
        t, stage, i = max(t, following.from), following, i + 1
      end
    end,
    full = kinds.window.full,
    reached = kinds.window.reached,
  }
end

-- warmup_calendar: the same of windows by the calendar, which look at one count.
function make.warmup_calendar()
  return {
    when = kinds.warmup.when,
    full = kinds.calendar.full,
    reached = kinds.calendar.reached,
    spend = function(subject, rule, t, cost, refused)
      kinds.calendar.spend(subject, (stage_at(rule, t)), t, cost, refused)
    end,
    undo = function(subject, rule, t, cost)
      kinds.calendar.undo(subject, (stage_at(rule, t)), t, cost)
    end,
  }
end
