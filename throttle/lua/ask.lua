-- ask answers a caller that takes turns: which slots it gets, of those that are near. The eight files of base.lua and
-- turns.lua stand before it.
--
-- KEYS    the subjects, then the turns of each, then the lists of logs that may be long
-- ARGV[1] JSON list: who asks; at least how many us ahead slots have to be, and at most how many behind that; whether
--         the caller wants more than it asks for; the subjects, each a list of the caller's weight and its rules as
--         compiled; and the runs of requests, each a list of how many there are, the places of their subjects,
--         what one costs each of them, and how far a slot lies behind the one before, at least
--
-- Returns now in microseconds, then for each run how many slots the caller got and these, then one that it did not
-- get, if it got fewer than it asked for, and for how long it should wait before it asks again; then which rule has
-- dropped those that got none (see whom), or 0; then how many slots shadow rules have objected to, and for each its place and
-- which rule has. Instants are in microseconds. An error stands in the place of the number of slots, and ends the run.

local who, after, within, more, asked, runs = unpack(cjson.decode(ARGV[1]))
local now = clock()
local from, n = now + after, #asked
local texts = n > 0 and call('MGET', unpack(KEYS, 1, 2 * n)) or none
local turns, written = {}, {} -- by key of a subject
local last -- the slot that was taken last
local held = {} -- the subjects of the run before if it has to wait, its slot, and for how long

-- turn_at returns what the caller may do at a subject in this call.
local function turn_at(subject, necessary)
  local turn = turns[subject.key]
  if not turn and (turn == nil or necessary) then
    turn = enter(texts[n + subject.at], who, subject.weight, after, now, necessary)
    turns[subject.key] = turn
    written[KEYS[n + subject.at]] = turn or nil
  end
  return turn
end

-- open returns the subjects of a run.
local function open(places, costs)
  local subjects = {}
  for i, at in ipairs(places) do
    local one = asked[at]
    one.rules = one.rules or make_rules(one, 1)
    local subject = read_subject(KEYS[at], one.rules, one.text == nil and texts[at])
    subject.at, subject.place, subject.weight, one.rules.cost = at, i, one.weight, costs[i]
    subjects[i] = subject
  end
  return subjects
end

-- soon returns the first instant from t on that the rules allow which drop, if each of them does so by the time from which on it admits
-- anything: slots of callers that are farther away lie ahead.
local function soon(subjects, t)
  for s = 1, #subjects do
    local subject = subjects[s]
    local rules = subject.rules
    for r = 1, rules.drops and #rules or 0 do
      local rule = rules[r]
      if rule.drop then
        local at = rule_when(subject, rule, t, rules.cost)
        if rule.guard > 0 then
          at = off(rule, at)
        end
        if at <= rule.kind.reached(subject, rule) then
          t = max(t, at)
        end
      end
    end
  end
  return t
end

-- admitted returns the first slot from one on, with the rule that binds and its subject.
local function admitted(subjects, first)
  local slot, rule, whose = earliest(subjects, first)
  for _ = 1, PASSES do
    local later = soon(subjects, slot)
    if later == slot then
      break
    end
    local binds, its
    slot, binds, its = earliest(subjects, later)
    rule, whose = binds or rule, its or whose
  end
  return slot, rule, whose
end

-- found returns the same. Where callers take turns, a rule also binds if it would have a little before: what is free just now is somebody's
-- turn.
local function found(subjects, first)
  local slot, rule, whose = admitted(subjects, first)
  if not rule then
    local any = false
    for i = 1, #subjects do
      any = turn_at(subjects[i], false) or any
    end
    if any then
      local _
      _, rule, whose = earliest(subjects, first - PATIENCE)
    end
  end
  return slot, rule, whose
end

-- note notes that the caller has taken a slot of some subjects.
local function note(subjects, slot)
  for i = 1, #subjects do
    local turn = turn_at(subjects[i], false)
    if turn then
      turn.served = turn.served + floor(subjects[i].rules.cost * UNIT / turn.weight)
      turn.last, turn.taken = max(turn.last, slot), true
    end
  end
end

-- wait returns for how long the caller should wait, which has taken a slot or has not and wants so many more, by its turn if that binds, and
-- notes that it comes back then.
local function wait(subjects, slot, takes, turn, rule, wanted)
  local rest = 0
  if turn then
    rest = again(turn, (takes and turn.last or slot) - (from + turn.reach - turn.after) - within, within, wanted, rule)
  end
  for i = 1, #subjects do
    local one = turn_at(subjects[i], false)
    if one and (not takes or more) then
      one.till = max(one.till, now + min(rest, FARTHEST) + ABSENCE)
    end
  end
  return rest
end

-- run answers the requests of a run. Behind one that has to wait those of the same subjects wait with it: a lower cost does not overtake.
local function run(count, places, costs, gap, replies)
  local of = table.concat(places, ' ')
  if held.of == of then
    for _, n in ipairs({ 0, held.slot, held.rest, 0, 0 }) do
      replies[#replies + 1] = n
    end
    return
  end
  local subjects, got, objections = open(places, costs), 0, {}
  local slot, takes, turn, rule, whose, refuses, by
  local first = #replies + 1
  replies[first] = 0
  repeat
    slot, rule, whose = found(subjects, last and max(from, last + gap) or from)
    turn = rule and turn_at(whose, true)
    if rule then
      takes = may_take(turn, slot - from, from, within, count - got, rule, #subjects == 1)
    else
      takes = slot - from <= within
    end
    if takes then
      refuses, by = refusing(subjects, slot)
      takes = not refuses
    end
    if takes then
      last = slot
      note(subjects, slot)
      local objection, objector = spend(subjects, slot)
      got = got + 1
      if objection then
        objections[#objections + 1], objections[#objections + 2] = got, whom(0, objector, objection)
      end
    end
    replies[#replies + 1] = slot
  until not takes or got == count
  for i = 1, #subjects do
    save(subjects[i], now)
    asked[places[i]].text = 'stale'
  end
  replies[first] = got
  local wanted = takes and (more and MOST or 1) or count - got
  local rest = wait(subjects, slot, takes, not refuses and turn, rule, wanted)
  held = { of = not takes and not refuses and of, slot = slot, rest = rest }
  replies[#replies + 1] = rest
  replies[#replies + 1] = refuses and whom(0, by, refuses) or 0
  replies[#replies + 1] = #objections / 2
  for i = 1, #objections do
    replies[#replies + 1] = objections[i]
  end
end

for i = 1, n do
  asked[i].weight = table.remove(asked[i], 1)
end
local replies = { now }
for i = 1, #runs do
  -- What is wrong with one run (a key of the wrong type) is not the others' trouble.
  local before = #replies
  local fine, why = pcall(run, runs[i][1], runs[i][2], runs[i][3], runs[i][4], replies)
  if not fine then
    for k = #replies, before + 1, -1 do
      replies[k] = nil
    end
    replies[before + 1] = type(why) == 'table' and why.err or tostring(why)
  end
end
for key, turn in pairs(written) do
  leave(key, turn)
end
return replies
