-- state: what is remembered of a subject. Stands behind logs.lua.
--
-- A subject is one string, which expires when no rule can tell it from none:
--   its log, which windows and spacings look at
--   then for each other rule ";field since until number number...": since when it counts,
--   and when nobody can tell it from none
--   then for each log on the side ";%side log": what was refused is counted in %counting,
--   and shadow rules keep %shadow

local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
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
    if text == '' then
      return subject
    end
  end
  return open_log(subject, text, rules)
end

-- owned makes sure that what somebody holds in a field is a table of its own.
local function owned(by, field)
  if not by[field] or by[field] == none then
    by[field] = {}
  end
  return by[field]
end

local no_size = { keep = 0, span = 0, mark = '' } -- of a log that no rule looks at

-- log_of returns the log that a rule looks at: the subject's, or one on the side.
local function log_of(subject, rule)
  local side = rule.side
  if not side then
    return subject
  end
  local sides = owned(subject, 'sides')
  if not sides[side] then
    local size = subject.rules.sides[side] or no_size
    local log = { key = subject.key, side = side, size = size, slots = '', newest = 0 }
    local text = subject.fields['%' .. side]
    sides[side] = text and open_log(log, text, size) or log
  end
  return sides[side]
end

-- numbers_of returns the numbers of a field as a table, or nil.
local function numbers_of(subject, field)
  local numbers = subject.fields[field]
  if type(numbers) == 'string' then
    local text = numbers
    numbers = {}
    for number in string.gmatch(text, '%S+') do
      numbers[#numbers + 1] = tonumber(number)
    end
    subject.fields[field] = numbers
  end
  return numbers
end

-- fields returns the numbers that a rule keeps, or nothing.
local function fields(subject, rule)
  local numbers = numbers_of(subject, rule.field)
  if numbers then
    return unpack(numbers, 3)
  end
end

-- counts_since returns since when a rule counts, or never.
local function counts_since(subject, rule)
  local numbers = numbers_of(subject, rule.field)
  return numbers and numbers[1] or NEVER
end

-- set_fields sets the numbers that a rule keeps. It counts from `since` on, if it has not
-- counted before. settle notes until when they matter.
local function set_fields(subject, rule, since, ...)
  local held = numbers_of(subject, rule.field)
  owned(subject, 'fields')[rule.field] = { held and held[1] or since, false, ... }
  subject.written = true
end

-- settle returns from when on the state of a rule equals none, and notes that in numbers that
-- were set in this decision. In others stands what was noted under the rule that set them.
local function settle(subject, rule)
  local full = rule.kind.full(subject, rule)
  local numbers = numbers_of(subject, rule.field)
  if numbers and not numbers[2] then
    numbers[2] = full
  end
  return full
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
