-- base: what every script that decides begins with. Eight files stand before such a script:
-- base.lua, costs.lua, logs.lua, state.lua, kinds.lua, ramp.lua, warmup.lua, rules.lua.
--
-- Times are integer microseconds on Redis's clock. They are exact in a Lua number
-- (1.8e15 < 2^53), but only `int` may turn one into text: tostring keeps 14 digits.

local SHORT = 128
local DIGITS = 16
local NEVER = 9007199254740992 -- 2^53: where exact integers end, in the year 2255
local CHUNK = 100
local MARGIN = 20 -- ms
local PASSES = 100 -- for which rules are asked again at most

-- What every decision calls again and again is a local: a global is looked up each time.
local call, max, min, floor, ceil = redis.call, math.max, math.min, math.floor, math.ceil
local format, sub, byte, find, match = string.format, string.sub, string.byte, string.find, string.match

local none = {}

local function int(n)
  return format('%d', n < NEVER and n or NEVER) -- half the time of '%.0f', and as exact
end

-- list returns the key of the list that a long log is.
local function list(log)
  return log.key .. '%' .. (log.side or '')
end

-- size_of returns what a log is to hold: keep and span, and as text, mark. For most that is
-- what the rules look at.
local function size_of(log)
  return log.size or log.rules
end

-- new_size makes a size.
local function new_size(keep, span)
  return { keep = keep, span = span, mark = int(keep) .. ' ' .. int(span) .. '@' }
end

-- units returns the costs of all slots of a log, summed up.
local function units(log)
  return log.units or #log.slots / DIGITS + (log.long and call('LLEN', list(log)) or 0)
end
