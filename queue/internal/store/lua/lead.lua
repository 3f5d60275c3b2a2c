-- lead makes a worker the leader, if there is none whose lease holds.
--
-- KEYS[1]  meta
-- ARGV[1]  schema
-- ARGV[2]  name of the worker
-- ARGV[3]  lease of the leader in µs
-- ARGV[4]  token that the worker leads by already, or "": it leads on under a new one, the next. The same
--          request may come again, also late: it has no effect then, and gets the same token
--
-- Returns {now, token or "", until when the present leader's lease holds, number of the last
-- commit, changes, version of the policies, ID of the last notice whose effects were committed}.

local call = redis.call
local meta = call('HMGET', KEYS[1], 'schema', 'leader', 'till', 'epoch', 'seq', 'changes', 'policies', 'notice')
if (meta[1] or ARGV[1]) ~= ARGV[1] then
  return redis.error_reply('SCHEMA ' .. meta[1])
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local till, token = tonumber(meta[3] or 0), ''
local free = till <= now
if ARGV[4] ~= '' then -- the number of the last commit is its own only if nobody has led since
  free = meta[2] == ARGV[4]
  local next = string.format('%d', tonumber(string.match(ARGV[4], '^%d+') or 0) + 1) .. ':' .. ARGV[2]
  if meta[2] == next then
    token = next
  end
end
if free then
  local epoch = string.format('%d', tonumber(meta[4] or 0) + 1)
  token, till = epoch .. ':' .. ARGV[2], now + ARGV[3]
  call('HSET', KEYS[1], 'schema', ARGV[1], 'leader', token, 'till', string.format('%d', till), 'epoch', epoch)
end
local number = function(i) return tonumber(meta[i] or 0) end
return { now, token, till, number(5), number(6), number(7), meta[8] or '0' }
