-- logs: the slots that windows and spacings look at, and how they are written. The first of
-- the four files that stand before every script that decides; state.lua, kinds.lua and
-- rules.lua follow.
--
-- Times are integer microseconds on Redis's clock. They are exact in a Lua number
-- (1.8e15 < 2^53), but only `int` may turn one into text: tostring keeps 14 digits.
--
-- A log is its slots, newest first, then "@keep span": the most units and the longest time
-- that rules have made it hold since it was empty. A rule that is tightened for a moment
-- must not make it forget. Its slots are
--   16 digits each, as long as each costs 1
--   or "c" and for each "slot:cost,"
--   or, when there are more than SHORT, "*": then they are a list, key%side, of slots or
--   slot:cost, newest first. "*units" says that costs stand there, and their sum

local SHORT = 128
local DIGITS = 16
local NEVER = 9007199254740992 -- 2^53: where exact integers end, in the year 2255
local CHUNK = 100

-- What every decision calls again and again is a local: a global is looked up each time.
local call, max, min, floor, ceil = redis.call, math.max, math.min, math.floor, math.ceil
local format, sub, find, match = string.format, string.sub, string.find, string.match

local none = {}

local function int(n)
  return format('%d', n < NEVER and n or NEVER) -- half the time of '%.0f', and as exact
end

-- list returns the key of the list that a long log is.
local function list(log)
  return log.key .. '%' .. (log.side or '')
end

-- entry reads one entry of a list: its slot and its cost.
local function entry(text)
  local slot, cost = match(text, '^(%d+):(%d+)$')
  return tonumber(slot or text), tonumber(cost or 1)
end

local function entry_text(slot, cost)
  return cost == 1 and int(slot) or int(slot) .. ':' .. int(cost)
end

-- open_log lets a table hold slots that were written as text. size is what the rules look
-- at: keep, span and mark.
local function open_log(log, text, size)
  local keep, span, mark = size.keep, size.span, find(text, '@', 1, true)
  if mark then
    if sub(text, mark) ~= size.mark then
      local kept, spanned = match(text, '^@(%d+) (%d+)', mark)
      keep, span = max(keep, tonumber(kept)), max(span, tonumber(spanned))
    end
    text = sub(text, 1, mark - 1)
  end
  log.keep, log.span, log.slots = keep, span, text
  local first = sub(text, 1, 1)
  if first == '*' then
    log.slots, log.long, log.units = '', true, tonumber(sub(text, 2))
    log.entries = log.units and {}
    log.newest = entry(call('LINDEX', list(log), '0') or '0')
  elseif first == 'c' then
    log.slots, log.entries, log.units = '', {}, 0
    for slot, cost in string.gmatch(text, '(%d+):(%d+)') do
      log.entries[#log.entries + 1] = { tonumber(slot), tonumber(cost) }
      log.units = log.units + tonumber(cost)
    end
    log.newest = log.entries[1][1]
  elseif text ~= '' then
    log.newest = tonumber(sub(text, 1, DIGITS))
  end
  return log
end

-- units returns the costs of all slots of a log, summed up.
local function units(log)
  return log.units or #log.slots / DIGITS + (log.long and call('LLEN', list(log)) or 0)
end

-- widen lets the entries of a log have costs. The slots that are not in its list become a
-- table: of slots and costs, newest first.
local function widen(log)
  if not log.entries then
    local entries = {}
    for from = 1, #log.slots, DIGITS do
      entries[#entries + 1] = { tonumber(sub(log.slots, from, from + DIGITS - 1)), 1 }
    end
    log.units = units(log)
    log.entries, log.slots = entries, ''
  end
end

-- scan calls `visit` with the slots, costs and places of a list, from one of its ends,
-- until that returns something, and returns it.
local function scan(log, backward, visit)
  local from = 0
  while true do
    local texts
    if backward then
      texts = call('LRANGE', list(log), int(-from - CHUNK), int(-from - 1))
    else
      texts = call('LRANGE', list(log), int(from), int(from + CHUNK - 1))
    end
    for i = 1, #texts do
      local slot, cost = entry(texts[backward and #texts + 1 - i or i])
      local found = visit(slot, cost, from + i - 1)
      if found then
        return found
      end
    end
    if #texts < CHUNK then
      return
    end
    from = from + CHUNK
  end
end

-- slot_of returns the slot of the n-th newest unit (0 is the newest) of a log whose
-- entries have costs, or 0 when it has fewer. Long ones are read from the nearer end.
local function slot_of(log, n)
  if n >= log.units then
    return 0
  end
  local behind = log.units - n
  for _, one in ipairs(log.entries) do
    n = n - one[2]
    if n < 0 then
      return one[1]
    end
  end
  if behind < n then
    return scan(log, true, function(slot, cost)
      behind = behind - cost
      return behind <= 0 and slot
    end)
  end
  return scan(log, false, function(slot, cost)
    n = n - cost
    return n < 0 and slot
  end)
end

-- slot_at returns the slot of the i-th newest unit of a log (0 is the newest), or 0 when
-- it has fewer.
local function slot_at(log, i)
  if i == 0 then
    return log.newest
  elseif log.entries then
    return slot_of(log, i) or 0
  end
  local slot = tonumber(sub(log.slots, DIGITS * i + 1, DIGITS * (i + 1)))
  if not slot and log.long then
    slot = tonumber(call('LINDEX', list(log), int(i - #log.slots / DIGITS)) or 0)
  end
  return slot or 0
end

-- push puts a slot before the log. What was refused counts for no more than the log holds.
local function push(log, t, cost, refused)
  log.holds = refused and log.keep or max(log.keep, cost)
  cost = min(cost, log.holds)
  if cost == 1 and not log.entries then
    log.slots, log.newest = format('%016d', t) .. log.slots, t
    return
  end
  widen(log)
  table.insert(log.entries, 1, { t, cost })
  log.units, log.newest = log.units + cost, t
end

-- take lowers the cost of an entry by what is left to take, and returns what it took.
local function take(one, left)
  local taken = min(one[2], left)
  one[2] = one[2] - taken
  return taken
end

-- remove_costs takes units of a slot out of a log whose entries have costs.
local function remove_costs(log, t, cost)
  local removed = 0
  for i = #log.entries, 1, -1 do
    if log.entries[i][1] == t then
      removed = removed + take(log.entries[i], cost - removed)
      if log.entries[i][2] == 0 then
        table.remove(log.entries, i)
      end
    end
  end
  if log.long then
    scan(log, false, function(slot, held, place)
      if slot == t and removed < cost then
        local one = { slot, held }
        removed = removed + take(one, cost - removed)
        call('LSET', list(log), int(place), one[2] > 0 and entry_text(t, one[2]) or 'gone')
      end
      return slot < t
    end)
    call('LREM', list(log), '0', 'gone')
  end
  log.units = log.units - removed
  log.newest = log.entries[1] and log.entries[1][1] or log.long and entry(call('LINDEX', list(log), '0') or '0') or 0
  return removed
end

-- remove takes a slot out of a log, at most `cost` units. Returns how many.
local function remove(log, t, cost)
  if log.entries then
    return remove_costs(log, t, cost)
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
    widen(log)
  end
  if log.entries then
    log.units = log.units + cost
  end
  if log.long then
    call('RPUSH', list(log), entry_text(t, cost))
  elseif log.entries then
    log.entries[#log.entries + 1] = { t, cost }
  else
    log.slots = log.slots .. format('%016d', t)
  end
  if log.newest == 0 then
    log.newest = t
  end
end

-- shorten takes the oldest units off a log whose entries have costs, until it holds no
-- more than it has to.
local function shorten(log)
  local excess = log.units - (log.holds or log.units)
  while excess > 0 do
    local text = log.long and call('RPOP', list(log))
    local one = text and { entry(text) } or table.remove(log.entries)
    local taken = take(one, excess)
    excess, log.units = excess - taken, log.units - taken
    if one[2] > 0 and text then
      call('RPUSH', list(log), entry_text(one[1], one[2]))
    elseif one[2] > 0 then
      log.entries[#log.entries + 1] = one
    end
  end
end

-- close_list writes what is to be in a list, for ttl ms. Returns the log as text.
local function close_list(log, ttl)
  if not log.long then
    call('DEL', list(log)) -- one that was forgotten, and has not expired yet
  end
  for at = #log.slots - DIGITS + 1, 1, -DIGITS do
    call('LPUSH', list(log), int(tonumber(sub(log.slots, at, at + DIGITS - 1))))
  end
  for i = log.entries and #log.entries or 0, 1, -1 do
    call('LPUSH', list(log), entry_text(log.entries[i][1], log.entries[i][2]))
  end
  log.long, log.slots, log.entries = true, '', log.entries and {}
  if log.entries then
    shorten(log)
  else
    call('LTRIM', list(log), '0', int(log.keep - 1))
  end
  return call('PEXPIRE', list(log), ttl) == 1 and '*' .. (log.units and int(log.units) or '') or ''
end

-- close_log returns the log as text, after writing what a list is to hold for ttl ms.
local function close_log(log, ttl, size)
  local text = log.slots
  if log.entries then
    if not log.long then
      shorten(log)
    end
    local texts = { 'c' }
    for i, one in ipairs(log.entries) do
      texts[i + 1] = int(one[1]) .. ':' .. int(one[2]) .. ','
    end
    text = #texts > 1 and table.concat(texts) or ''
  elseif #text > DIGITS * log.keep and log.keep > 0 then
    text = sub(text, 1, DIGITS * log.keep)
    log.slots = text
  end
  if log.long or #text > DIGITS * SHORT and (log.entries and #log.entries or SHORT + 1) > SHORT then
    text = close_list(log, ttl)
  end
  if text == '' then
    return ''
  elseif log.keep == size.keep and log.span == size.span then
    return text .. size.mark
  end
  return text .. '@' .. int(log.keep) .. ' ' .. int(log.span)
end
