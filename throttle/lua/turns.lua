-- turns: who may take slots of a subject that several callers want ahead, as turns.go tells it.
-- Stands before decide.lua, and is used where a request says who asks.
--
-- What is known of the callers of a subject is one string, with a key of its own: who has been
-- served least, then ";name,served,weight,until,last,after" for each caller.

local UNIT = 1000000
local PATIENCE, ABSENCE, FARTHEST = 10000, 10000, 1000000
local LONGEST, SHORTEST = 50000, 2000 -- leave slots that pass, and others
local KEPT = 10000 -- ms

local entered = {} -- by the key of the subject: what the caller may do in this call

-- read_turns returns the turns of a subject, or nothing. Those that cannot be read are none.
local function read_turns(key)
  local fine, text = pcall(call, 'GET', key .. '%turns')
  local least = fine and text and tonumber(match(text, '^%d+') or '')
  if not least then
    return
  end
  local turns = { least = least, callers = {} }
  for name, served, weight, till, last, after in string.gmatch(text, ';([^,;]*),(%d+),(%d+),(%d+),(%d+),(%d+)') do
    turns.callers[name] = {
      served = tonumber(served), weight = tonumber(weight), till = tonumber(till), last = tonumber(last), after = tonumber(after),
    }
  end
  return turns
end

-- write_turns writes the turns of all subjects at which the caller was.
local function write_turns()
  for key, turn in pairs(entered) do
    if turn then
      local texts = { int(turn.of.least) }
      for name, one in pairs(turn.of.callers) do
        texts[#texts + 1] = ';' .. name .. ','
          .. table.concat({ int(one.served), int(one.weight), int(one.till), int(one.last), int(one.after) }, ',')
      end
      call('PSETEX', key .. '%turns', int(KEPT), table.concat(texts))
    end
  end
end

-- wants tells whether a caller waits for its turn. An instant that lies further ahead is from before the clock was
-- set back.
local function wants(one, now)
  return one.till >= now and one.till <= now + FARTHEST + ABSENCE
end

-- turn_at begins the call of a caller at a subject, if that is necessary or others have taken turns there.
local function turn_at(key, shape, weight, now, necessary)
  if entered[key] ~= nil and (entered[key] or not necessary) then
    return entered[key]
  end
  local turns = entered[key] == nil and read_turns(key) or necessary and { least = 0, callers = {} }
  if not turns then
    entered[key] = false
    return false
  end
  local who, least, others, reach = shape.by, NEVER, false, shape.after
  for name, one in pairs(turns.callers) do
    if name ~= who then
      if wants(one, now) then
        least, others, reach = min(least, one.served), true, max(reach, one.after)
      elseif one.served <= turns.least then
        turns.callers[name] = nil
      end
    end
  end
  local me = turns.callers[who] or { served = 0, till = 0, last = 0 }
  turns.callers[who] = me
  if not wants(me, now) then
    me.served = max(me.served, turns.least)
  end
  me.weight, me.till, me.after = weight, now, shape.after
  turns.least = max(turns.least, min(least, me.served))
  entered[key] = { of = turns, me = me, has = not others or me.served <= least, reach = reach, taken = false }
  return entered[key]
end

-- passes tells whether a slot that nobody takes is lost.
local function passes(rule)
  return rule.kind == kinds.leak or rule.kind == kinds.spacing
    or rule.kind == kinds.token_bucket and floor(rule.burst * rule.period / rule.n) < PATIENCE
end

-- rest returns for how long the others take slots until they have been served as much.
local function rest(turn, now, rule)
  local units = 0
  for _, one in pairs(turn.of.callers) do
    if wants(one, now) and one.served < turn.me.served then
      units = units + floor((turn.me.served - one.served) * one.weight / UNIT)
    end
  end
  return min(floor(units * rule.period / rule.n), passes(rule) and LONGEST or SHORTEST)
end

-- may_take tells whether the caller takes a slot that lies so far behind the first instant that is of use to it.
local function may_take(turn, ahead, from, within, rule, alone)
  if passes(rule) and ahead <= floor(within / 3) then
    return true
  elseif not turn.has then
    return false
  end
  return ahead <= within + turn.reach - turn.me.after or alone and not turn.taken and turn.me.last <= from + within and ahead <= FARTHEST
end

-- take_turn tells whether the caller of a request takes a slot, which a rule of a subject has bound, and when it
-- should ask again.
local function take_turn(shape, subjects, slot, now, rule, whose)
  local from, known, any = now + shape.after, {}, false
  for i = 1, #subjects do
    known[i] = turn_at(subjects[i].key, shape, shape.weights[i], now, rule and subjects[i] == whose)
    any = any or known[i]
  end
  if not rule and any then -- perhaps it has become free just now
    local _
    _, rule, whose = earliest(subjects, from - PATIENCE)
  end
  local takes, again, mine = true, 0, nil
  if rule then
    mine = turn_at(whose.key, shape, shape.weights[whose.place], now, true)
    known[whose.place] = mine
    takes = may_take(mine, slot - from, from, shape.within, rule, #subjects == 1)
    from = from + mine.reach - mine.me.after
  end
  for i = 1, #subjects do
    if takes and known[i] then
      local me = known[i].me
      me.served = me.served + floor(subjects[i].rules.cost * UNIT / me.weight)
      me.last, known[i].taken = max(me.last, slot), true
    end
  end
  if mine then
    again = max((takes and mine.me.last or slot) - from - shape.within, rest(mine, now, rule), 0)
  end
  for i = 1, #subjects do
    if known[i] and (not takes or shape.more) then
      known[i].me.till = max(known[i].me.till, now + min(again, FARTHEST) + ABSENCE)
    end
  end
  return takes, again
end
