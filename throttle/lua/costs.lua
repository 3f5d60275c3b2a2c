-- costs: what is done with logs that are long, or whose entries have costs. Stands behind
-- base.lua. Making a function takes a script time, and most scripts need none of these:
-- they are made when the first is asked for.
local costs = setmetatable({}, { __index = function(made, name)
  -- entry reads one entry of a list: its slot and its cost.
  local function entry(text)
    local slot, cost = match(text, '^(%d+):(%d+)$')
    return tonumber(slot or text), tonumber(cost or 1)
  end

  local function entry_text(slot, cost)
    return cost == 1 and int(slot) or int(slot) .. ':' .. int(cost)
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

  -- open reads the slots of a log that are not 16 digits each.
  local function open(log, text)
    log.slots, log.newest = '', 0
    if byte(text) == 42 then -- *
      log.long, log.units = true, tonumber(sub(text, 2))
      log.entries = log.units and {}
      log.newest = entry(call('LINDEX', list(log), '0') or '0')
    elseif text ~= '' then
      log.entries, log.units = {}, 0
      for slot, cost in string.gmatch(text, '(%d+):(%d+)') do
        log.entries[#log.entries + 1] = { tonumber(slot), tonumber(cost) }
        log.units = log.units + tonumber(cost)
      end
      log.newest = log.entries[1][1]
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

  -- take lowers the cost of an entry by what is left to take, and returns what it took.
  local function take(one, left)
    local taken = min(one[2], left)
    one[2] = one[2] - taken
    return taken
  end

  -- remove takes units of a slot out of a log whose entries have costs.
  local function remove(log, t, cost)
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
      call('LTRIM', list(log), '0', int(size_of(log).keep - 1))
    end
    return call('PEXPIRE', list(log), ttl) == 1 and '*' .. (log.units and int(log.units) or '') or ''
  end

  -- close returns a log whose entries have costs as text.
  local function close(log, ttl)
    if not log.long then
      shorten(log)
    end
    if log.long or #log.entries > SHORT then
      return close_list(log, ttl)
    end
    local texts = {}
    for i, one in ipairs(log.entries) do
      texts[i] = int(one[1]) .. ':' .. int(one[2]) .. ','
    end
    return texts[1] and 'c' .. table.concat(texts) or ''
  end

  made.open, made.widen, made.slot_of, made.remove = open, widen, slot_of, remove
  made.entry_text, made.close, made.close_list = entry_text, close, close_list
  return rawget(made, name)
end })
