-- lines: indexes of who is due, read from the front. Prepended to pull, which takes from
-- the tenants that are due, and from their lanes that are due.
--
-- An index is a sorted set by bounds. To read a score out of it costs Redis more than all
-- else about a member: those that are due are fetched without, some ahead. What becomes of
-- members is written when the line is closed, or before more of them are fetched: whoever
-- is served goes behind all that are due already.

local AHEAD = 16

local function open_line(index)
  return { index = index, members = none, at = 1, ahead = 2, more = true, reach = 0,
    moved = {}, soonest = INFINITY, gone = {} }
end

local function close_line(line)
  if #line.moved > 0 then
    call('ZADD', line.index, unpack(line.moved))
    line.moved, line.soonest = {}, INFINITY
  end
  if #line.gone > 0 then
    call('ZREM', line.index, unpack(line.gone))
    line.gone = {}
  end
end

-- first_due returns the first member that is due at t, or nothing.
local function first_due(line, t)
  local member = line.members[line.at]
  if not member and (line.more or line.soonest <= t or line.reach < t) then
    close_line(line)
    line.members, line.at = call('ZRANGEBYSCORE', line.index, '-inf', int(t), 'LIMIT', '0', int(line.ahead)), 1
    line.more, line.reach, line.ahead = #line.members == line.ahead, t, min(2 * line.ahead, AHEAD)
    member = line.members[1]
  end
  return member
end

-- first_two returns the first member and its bound, and the bound of the second.
local function first_two(line)
  close_line(line)
  line.members, line.at = none, 1
  local two = call('ZRANGE', line.index, '0', '1', 'WITHSCORES')
  return two[1], tonumber(two[2] or INFINITY), tonumber(two[4] or INFINITY)
end

local function step_over(line, member)
  if line.members[line.at] == member then
    line.at = line.at + 1
  end
end

-- move gives a member another bound, and its place with it.
local function move(line, member, bound)
  local moved = line.moved
  moved[#moved + 1], moved[#moved + 2] = int(bound), member
  line.soonest = min(line.soonest, bound)
  step_over(line, member)
end

-- strike takes a member out.
local function strike(line, member)
  line.gone[#line.gone + 1] = member
  step_over(line, member)
end
