-- refund gives a slot that was spent and not used back to the rules of its subjects.
--
-- KEYS     the subjects, then the lists of their logs that may be long
-- ARGV[1]  the slot in microseconds
-- ARGV[2]  1 if a shadow rule objected, and so no shadow rule was spent
-- ARGV     then for each subject its cost and its compiled rules, a list
--
-- Returns 0.

-- refund_log takes the slot t out of a log. What the log has forgotten was, at its newest
-- slot, out of every rule's sight, for which a slot matters so long as span says; it stands in
-- with the latest slot that it can have been. Rules that were in force before may have looked
-- farther back: they say nothing about it.
local function refund_log(log, t, cost, span)
  local held, newest = units(log), log.newest
  local oldest = slot_at(log, max(0, held - 1))
  local removed = remove(log, t, cost)
  if removed > 0 and held >= size_of(log).keep then
    append(log, log.side == 'counting' and oldest or max(0, min(oldest, newest - span)), removed)
  end
end

-- refund_logs takes the slot t out of the logs of a subject. The log of shadow rules
-- never had it if one of them objected.
local function refund_logs(subject, t, cost, objected)
  if subject.rules.keep > 0 then
    refund_log(subject, t, cost, subject.rules.span)
  end
  for side, size in pairs(subject.rules.sides) do
    if not (objected and side == 'shadow') then
      refund_log(log_of(subject, { side = side }), t, cost, size.span)
    end
  end
end

-- refund_states gives the slot t back to the rules that keep more than slots.
local function refund_states(subject, t, cost, objected)
  for _, rule in ipairs(subject.rules.stateful) do
    if not (rule.shadow and objected) then
      rule.kind.undo(subject, rule, t, cost)
    end
  end
end

-- refund gives the unused slot t back to every rule that was spent at it, and saves.
local function refund(subjects, t, now, objected)
  for _, subject in ipairs(subjects) do
    refund_logs(subject, t, subject.rules.cost, objected)
    refund_states(subject, t, subject.rules.cost, objected)
    subject.written = subject.rules.any
    save(subject, now)
  end
end

local now, subjects = clock(), {}
for i = 1, #ARGV - 2 do
  local compiled = cjson.decode(ARGV[2 + i])
  subjects[i] = read_subject(KEYS[i], make_rules(compiled, table.remove(compiled, 1)))
end
refund(subjects, tonumber(ARGV[1]), now, ARGV[2] == '1')
return 0
