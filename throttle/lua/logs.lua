-- logs: the slots that windows and spacings look at, and how they are written. Stands behind
-- costs.lua.
--
-- A log is "keep span@", then its slots, newest first. keep and span are the most units and
-- the longest time that rules have made it hold since it was empty: a rule that is
-- tightened for a moment must not make it forget. Its slots are
--   16 digits each, as long as each costs 1
--   or "c" and for each "slot:cost,"
--   or, when there are more than SHORT, "*": then they are a list, key%side, of slots or
--   slot:cost, newest first. "*units" says that costs stand there, and their sum

-- open_log lets a table hold slots that were written as text. size is what the rules look
-- at.
local function open_log(log, text, size)
  local mark = size.mark
  if mark ~= '' and sub(text, 1, #mark) == mark then
    text = sub(text, #mark + 1)
  else
    local keep, span, from = match(text, '^(%d+) (%d+)@()')
    if from then -- an older release wrote none
      log.size = new_size(max(size.keep, tonumber(keep)), max(size.span, tonumber(span)))
      text = sub(text, from)
    end
  end
  log.slots, log.newest = text, tonumber(sub(text, 1, DIGITS))
  if not log.newest then
    costs.open(log, text)
  end
  return log
end

-- slot_at returns the slot of the i-th newest unit of a log (0 is the newest), or 0 when
-- it has fewer.
local function slot_at(log, i)
  if i == 0 then
    return log.newest
  elseif log.entries then
    return costs.slot_of(log, i) or 0
  end
  local slot = tonumber(sub(log.slots, DIGITS * i + 1, DIGITS * (i + 1)))
  if not slot and log.long then
    slot = tonumber(call('LINDEX', list(log), int(i - #log.slots / DIGITS)) or 0)
  end
  return slot or 0
end

-- push puts a slot before the log. What was refused counts for no more than the log holds.
local function push(log, t, cost, refused)
  if cost == 1 and not log.entries then
    log.slots, log.newest = format('%016d', t) .. log.slots, t
    return
  end
  local keep = size_of(log).keep
  log.holds = refused and keep or max(keep, cost)
  cost = min(cost, log.holds)
  costs.widen(log)
  table.insert(log.entries, 1, { t, cost })
  log.units, log.newest = log.units + cost, t
end

-- remove takes a slot out of a log, at most `cost` units. Returns how many.
local function remove(log, t, cost)
  if log.entries then
    return costs.remove(log, t, cost)
  end
  local removed = 0
  if log.long then
    removed = call('LREM', list(log), int(cost), int(t))
    log.newest = tonumber(call('LINDEX', list(log), '0') or 0)
  else
    local slot, kept = format('%016d', t), {}
    for from = 1, #log.slots, DIGITS do
      local one = sub(log.slots, from, from + DIGITS - 1)
      if one == slot and removed < cost then
        removed = removed + 1
      else
        kept[#kept + 1] = one
      end
    end
    log.slots = table.concat(kept)
    log.newest = tonumber(kept[1]) or 0
  end
  return removed
end

-- append puts units behind the log, all in one slot.
local function append(log, t, cost)
  if cost > 1 then
    costs.widen(log)
  end
  if log.entries then
    log.units = log.units + cost
  end
  if log.long then
    call('RPUSH', list(log), costs.entry_text(t, cost))
  elseif log.entries then
    log.entries[#log.entries + 1] = { t, cost }
  else
    log.slots = log.slots .. format('%016d', t)
  end
  if log.newest == 0 then
    log.newest = t
  end
end

-- close_log returns the log as text, after writing what a list is to hold for ttl ms.
local function close_log(log, ttl)
  local text, size = log.slots, size_of(log)
  if log.entries then
    text = costs.close(log, ttl)
  else
    if #text > DIGITS * size.keep and size.keep > 0 then
      text = sub(text, 1, DIGITS * size.keep)
      log.slots = text
    end
    if log.long or #text > DIGITS * SHORT then
      text = costs.close_list(log, ttl)
    end
  end
  return text == '' and '' or size.mark .. text
end
