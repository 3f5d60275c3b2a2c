-- turns: who may take slots of a subject that several callers want ahead, as turns.go tells it.
-- Stands before ask.lua.
--
-- What is known of the callers of a subject is one string, with a key of its own: who has been
-- served least, then ";name,served,until,after,weight,last" for each caller. It is read in one go,
-- and only the entry of whoever asks is written anew.

local UNIT = 1000000
local PATIENCE, ABSENCE, FARTHEST = 10000, 10000, 1000000
local LONGEST, SHORTEST = 50000, 2000 -- leave slots that pass, and others
local SHARE, MOST = 0.375, 64 -- turnShare and turnMost in turns.go
local KEPT = '10000' -- ms

-- wants tells whether a caller waits for its turn until then. An instant that lies further ahead is from before the
-- clock was set back.
local function wants(till, now)
  return till >= now and till <= now + FARTHEST + ABSENCE
end

-- split returns what the entries of a text say of a caller, and the text without it.
local function split(text, who)
  local first, last = find(text, ';' .. who .. ',', 1, true)
  if not first then
    return nil, text
  end
  local behind = find(text, ';', last + 1, true) or #text + 1
  return sub(text, last + 1, behind - 1), sub(text, 1, first - 1) .. sub(text, behind)
end

-- without_idle returns the entries of those who want slots, or have been served more than the least.
local function without_idle(text, least, now)
  return (string.gsub(text, ';[^,;]*,(%d+),(%d+)[%d,]*', function(served, till)
    if not wants(tonumber(till), now) and tonumber(served) <= least then
      return ''
    end
  end))
end

-- enter begins the call of a caller at a subject whose turns are written so; false if nobody has taken turns there, and
-- that is not necessary.
local function enter(text, who, weight, after, now, necessary)
  local known = text and tonumber(match(text, '^%d+') or '')
  if not (known or necessary) then
    return false
  end
  local mine, others = split(known and match(text, '^%d+(.*)$') or '', who)
  local served, till, _, _, last = match(mine or '', '^(%d+),(%d+),(%d+),(%d+),(%d+)$')
  local turn = {
    who = who, weight = weight, after = after, has = true, taken = false, reach = after,
    least = known or 0, served = tonumber(served or 0), till = tonumber(till or 0), last = tonumber(last or 0),
    wanting = {}, -- served, weight and newest slot of each other one that wants slots
  }
  local least, n, idle = NEVER, 0, false
  for served, till, far, weight, last in string.gmatch(others, ';[^,;]*,(%d+),(%d+),(%d+),(%d+),(%d+)') do
    served, till = tonumber(served), tonumber(till)
    if wants(till, now) then
      turn.wanting[n + 1], turn.wanting[n + 2], turn.wanting[n + 3], n = served, tonumber(weight), tonumber(last), n + 3
      least, turn.reach = min(least, served), max(turn.reach, tonumber(far))
    else
      idle = idle or served <= turn.least
    end
  end
  turn.others = idle and without_idle(others, turn.least, now) or others
  if not wants(turn.till, now) then
    turn.served = max(turn.served, turn.least)
  end
  turn.till = now
  turn.least = max(turn.least, min(least, turn.served))
  turn.has = turn.served <= least
  return turn
end

-- leave writes the turns of a subject at the end of a call.
local function leave(key, turn)
  call('PSETEX', key, KEPT, int(turn.least) .. turn.others .. ';' .. turn.who .. ',' .. int(turn.served) .. ',' .. int(turn.till)
    .. ',' .. int(turn.after) .. ',' .. int(turn.weight) .. ',' .. int(turn.last))
end

-- passes tells whether a slot that nobody takes is lost.
local function passes(rule)
  return rule.name == 'leak' or rule.name == 'ramp' or rule.name == 'spacing'
    or rule.name == 'token_bucket' and floor(rule.burst * rule.period / rule.n) < PATIENCE
end

-- windowed tells whether a rule counts what starts within a time.
local function windowed(rule)
  return not (rule.name == 'leak' or rule.name == 'ramp' or rule.name == 'spacing' or rule.name == 'token_bucket')
end

-- span returns how long a rule takes to let so many start.
local function span(rule, units)
  return floor(units * rule.period / rule.n)
end

-- quantum_of returns how many slots are a quantum for a caller that wants so many.
local function quantum_of(rule, within, wanted)
  return passes(rule) and min(wanted, 1 + floor(within * SHARE * rule.n / rule.period)) or 1
end

-- again returns for how long the caller should wait until its next quantum is near. The next slot is near in far us. Others whose turn comes before
-- take quanta until they have been served as much: one at least.
local function again(turn, far, within, wanted, rule)
  local quantum, units, wanting = quantum_of(rule, within, MOST), 0, turn.wanting
  for i = 1, #wanting, 3 do
    local less = turn.served - wanting[i]
    if less > 0 or less == 0 and wanting[i + 2] < turn.last then
      units = units + max(1, math.ceil(floor(less * wanting[i + 1] / UNIT) / quantum)) * quantum
    end
  end
  local rest = span(rule, units)
  if not passes(rule) then
    return max(far, min(rest, SHORTEST), 0)
  end
  return max(far + min(rest, LONGEST) + span(rule, min(quantum, wanted) - 1), 0)
end

-- may_take tells whether the caller takes a slot that lies so far behind the first instant that is of use to it, and wants so many. Of a
-- quantum all slots have to be near.
local function may_take(turn, ahead, from, within, wanted, rule, alone)
  local quantum, near = quantum_of(rule, within, wanted), within + turn.reach - turn.after
  if passes(rule) and ahead <= floor(within / 3) then
    return true
  elseif not turn.has then
    return false
  elseif quantum > 1 and not turn.taken then
    return ahead + span(rule, quantum - 1) <= near
  end
  return ahead <= near
    or alone and not windowed(rule) and not turn.taken and turn.last <= from + within and ahead <= FARTHEST
end
