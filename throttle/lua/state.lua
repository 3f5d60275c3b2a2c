-- state: what is remembered of a subject, and how. The first of the three files that
-- stand before every script that decides; kinds.lua and rules.lua follow.
--
-- Times are integer microseconds on Redis's clock. They are exact in a Lua number
-- (1.8e15 < 2^53), but only `int` may turn one into text: tostring keeps 14 digits.
--
-- A subject is one string, which expires when no rule can tell it from none:
--   the slots of its log, newest first, 16 digits each: for windows and spacings
--   then for each other rule ";field number number..."
--   then for each log on the side ";%side slots": what was refused is counted in
--   %counting, and shadow rules keep %shadow
-- A log of more than SHORT slots is a list instead, key%side, newest first, and stands as
-- "*" in the string. It stays one until it expires.

local SHORT = 128
local DIGITS = 16
local LONG = '*'

-- What every decision calls again and again is a local: a global is looked up each time.
local call, max, min, floor, ceil = redis.call, math.max, math.min, math.floor, math.ceil
local format, sub, find = string.format, string.sub, string.find

local none = {}

local function int(n)
  return format('%d', n) -- half the time of '%.0f', and as exact for integers
end

local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- list returns the key of the list that a long log is.
local function list(log)
  return log.key .. '%' .. (log.side or '')
end

-- size_of returns how many slots a log is to keep, and for how long: keep and span.
local function size_of(log)
  return log.size or log.rules
end

-- open_log lets a table hold slots that were written as text.
local function open_log(log, text)
  log.slots = text
  if text == LONG then
    log.slots, log.long = '', true
    log.newest = tonumber(call('LINDEX', list(log), '0') or 0)
  elseif text ~= '' then
    log.newest = tonumber(sub(text, 1, DIGITS))
  end
  return log
end

-- slot_at returns the i-th newest slot of a log (0 is the newest), or 0 when it has
-- fewer.
local function slot_at(log, i)
  if i == 0 then
    return log.newest
  end
  local slot = tonumber(sub(log.slots, DIGITS * i + 1, DIGITS * (i + 1)))
  if not slot and log.long then
    slot = tonumber(call('LINDEX', list(log), int(i - #log.slots / DIGITS)) or 0)
  end
  return slot or 0
end

-- push puts a slot before the log, once for each unit of its cost that can matter.
local function push(log, t, cost)
  local slot = format('%016d', t)
  if cost > 1 then
    slot = string.rep(slot, min(cost, size_of(log).keep))
  end
  log.slots, log.newest = slot .. log.slots, t
end

-- remove takes a slot out of a log, at most `cost` times. Returns how often.
local function remove(log, t, cost)
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

-- append puts slots behind the log.
local function append(log, t, times)
  if log.long then
    for _ = 1, times do
      call('RPUSH', list(log), int(t))
    end
  else
    log.slots = log.slots .. string.rep(format('%016d', t), times)
  end
  if log.newest == 0 then
    log.newest = t
  end
end

local function length(log)
  return #log.slots / DIGITS + (log.long and call('LLEN', list(log)) or 0)
end

-- close_log returns the log as text, after writing what a list is to hold for ttl ms.
local function close_log(log, ttl)
  local keep = size_of(log).keep
  if keep > 0 and #log.slots > DIGITS * keep then
    log.slots = sub(log.slots, 1, DIGITS * keep)
  end
  if not log.long and #log.slots <= DIGITS * SHORT then
    return log.slots
  end
  for at = #log.slots - DIGITS + 1, 1, -DIGITS do
    call('LPUSH', list(log), int(tonumber(sub(log.slots, at, at + DIGITS - 1))))
  end
  log.slots, log.long = '', true
  call('LTRIM', list(log), '0', int(keep - 1))
  return call('PEXPIRE', list(log), ttl) == 1 and LONG or ''
end

-- read_subject returns a subject under its rules, with its state: `text`, if that was read
-- already. It is a log as well: its own. With few fields, as here, a table is small: that
-- is felt where there is one for each user.
local function read_subject(key, rules, text)
  local subject = { key = key, rules = rules, fields = none, slots = '', newest = 0 }
  text = text or rules.any and call('GET', key)
  if not text then
    return subject
  end
  local first = find(text, ';', 1, true)
  if first then
    subject.fields = {}
    for field, value in string.gmatch(sub(text, first), ';([^ ]+) ([^;]*)') do
      subject.fields[field] = value
    end
    text = sub(text, 1, first - 1)
  end
  return open_log(subject, text)
end

-- owned makes sure that what somebody holds in a field is a table of its own.
local function owned(by, field)
  if not by[field] or by[field] == none then
    by[field] = {}
  end
  return by[field]
end

-- log_of returns the log that a rule looks at: the subject's, or one on the side.
local function log_of(subject, rule)
  local side = rule.side
  if not side then
    return subject
  end
  local sides = owned(subject, 'sides')
  if not sides[side] then
    sides[side] = open_log({ key = subject.key, side = side, size = subject.rules.sides[side], newest = 0 },
      subject.fields['%' .. side] or '')
  end
  return sides[side]
end

-- fields returns the numbers that a rule keeps, or nothing.
local function fields(subject, rule)
  local numbers = subject.fields[rule.field]
  if not numbers then
    return
  end
  if type(numbers) == 'string' then
    local text = numbers
    numbers = {}
    for number in string.gmatch(text, '%S+') do
      numbers[#numbers + 1] = tonumber(number)
    end
    subject.fields[rule.field] = numbers
  end
  return unpack(numbers)
end

local function set_fields(subject, rule, ...)
  owned(subject, 'fields')[rule.field] = {...}
  subject.written = true
end

-- numerals returns the numbers of a field as text.
local function numerals(numbers)
  local texts = {}
  for i = 1, #numbers do
    texts[i] = int(numbers[i])
  end
  return table.concat(texts, ' ')
end

-- write_subject writes what is remembered, to live for ttl ms.
local function write_subject(subject, ttl)
  local lives = int(ttl)
  if subject.sides then
    for side, log in pairs(subject.sides) do
      local slots = close_log(log, lives)
      owned(subject, 'fields')['%' .. side] = slots ~= '' and slots or nil
    end
  end
  local text = close_log(subject, lives)
  if subject.fields ~= none then
    for field, value in pairs(subject.fields) do
      text = text .. ';' .. field .. ' ' .. (type(value) == 'table' and numerals(value) or value)
    end
  end
  if text == '' then
    call('DEL', subject.key)
  else
    call('PSETEX', subject.key, lives, text)
  end
end
