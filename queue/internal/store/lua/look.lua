-- look reads, at one instant, what says when jobs may start. It changes nothing.
--
-- KEYS[1]  meta
-- KEYS[2]  paused; then states
-- ARGV[1]  schema; then fields of meta
--
-- Returns {now, version of the policies, pauses, states, values of the fields}.

local call = redis.call
local meta = call('HMGET', KEYS[1], 'schema', 'policies', unpack(ARGV, 2))
if (meta[1] or ARGV[1]) ~= ARGV[1] then
  return redis.error_reply('SCHEMA ' .. meta[1])
end
expect(KEYS[2], 'zset')
local time, states = call('TIME'), {}
if #KEYS > 2 then
  states = call('MGET', unpack(KEYS, 3))
end
return { time[1] * 1000000 + time[2], tonumber(meta[2] or 0), call('ZRANGE', KEYS[2], '0', '-1', 'WITHSCORES'), states,
  { unpack(meta, 3, 1 + #ARGV) } }
