-- look reads, at one instant, what says when jobs may start. It changes nothing.
--
-- KEYS[1]  meta
-- KEYS[2]  paused; then the states of scopes
-- ARGV[1]  schema; then the scopes; then fields of meta
--
-- Returns {now, version of the policies, scopes that are paused with their ends, states, values of the
-- fields}.

local call = redis.call
local scopes = #KEYS - 2
local meta = call('HMGET', KEYS[1], 'schema', 'policies', unpack(ARGV, 2 + scopes))
if (meta[1] or ARGV[1]) ~= ARGV[1] then
  return redis.error_reply('SCHEMA ' .. meta[1])
end
expect(KEYS[2], 'zset')
local time, states, pauses = call('TIME'), {}, {}
if scopes > 0 then
  states = call('MGET', unpack(KEYS, 3))
  for i, score in ipairs(call('ZMSCORE', KEYS[2], unpack(ARGV, 2, 1 + scopes))) do
    if score then
      pauses[#pauses + 1], pauses[#pauses + 2] = ARGV[1 + i], score
    end
  end
end
return { time[1] * 1000000 + time[2], tonumber(meta[2] or 0), pauses, states, { unpack(meta, 3, 1 + #ARGV - scopes) } }
