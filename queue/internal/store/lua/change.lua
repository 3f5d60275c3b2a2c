-- change does what somebody other than the leader has decided, and tells the leader, who
-- commits nothing until it knows. It decides nothing: every step is done if its conditions
-- hold and what must not fail does not, whatever becomes of the other steps.
--
-- KEYS[1]  meta
-- KEYS[2]  notices; then all keys that the words below hold
-- ARGV[1]  schema
-- ARGV[2]  "1" if the leader must know before it commits anything more
-- ARGV[3]  number of steps
-- then lists, each of them after its length:
--   keys of the queue itself and their types: where one has another type nothing is done
--   the notice in subjects and texts
--   for each step its conditions, an empty list, commands that must not fail, an empty list, its
--   other commands, an empty list. The last condition may change something: so the types of the
--   keys of commands that must not fail are looked at before
--     condition  expected reply, command, keys, arguments; the reply of a command that finds nothing
--                is ""
--     command    command, key, arguments
--
-- Returns {now, numbers of the steps that were done, errors}.

local call = redis.call
local schema = call('HGET', KEYS[1], 'schema')
if (schema or ARGV[1]) ~= ARGV[1] then
  return redis.error_reply('SCHEMA ' .. schema)
end
local time = call('TIME')
local done, errors = {}, {}

local function try(words)
  local fine, reply = pcall(call, unpack(words))
  if not fine then
    errors[#errors + 1] = words[1] .. ' ' .. words[2] .. ': ' .. (type(reply) == 'table' and reply.err or tostring(reply))
  end
  return fine, reply
end

-- list returns the words of the next list, or nothing if it is empty. No other function uses at: in the embedded Redis
-- functions no longer share a variable after an error that was caught.
local at = 4
local function list()
  local n = tonumber(ARGV[at])
  at = at + 1 + n
  return n > 0 and { unpack(ARGV, at - n, at - 1) } or nil
end

-- lists returns the lists that come before an empty one.
local function lists()
  local all = {}
  for words in list do
    all[#all + 1] = words
  end
  return all
end

-- possible reports whether a command does not fail for a key of another type.
local writes = { RPUSH = 'list', ZADD = 'zset', HSET = 'hash', XADD = 'stream' }
local function possible(command)
  local is = kind(command[2], writes[command[1]])
  if is then
    errors[#errors + 1] = command[1] .. ' ' .. command[2] .. ': it is a ' .. is .. ', want a ' .. writes[command[1]]
  end
  return not is
end

local kinds = list() or {}
for i = 1, #kinds, 2 do
  expect(kinds[i], kinds[i + 1])
end
local notice = list()
if notice then
  expect(KEYS[2], 'stream')
end
for step = 1, tonumber(ARGV[3]) do
  local conditions, musts, others = lists(), lists(), lists()
  local wanted = true
  for _, command in ipairs(musts) do
    wanted = wanted and possible(command)
  end
  for _, condition in ipairs(conditions) do
    local want = table.remove(condition, 1)
    if wanted then
      local fine, reply = try(condition)
      wanted = fine and tostring(reply or '') == want
    end
  end
  for _, command in ipairs(musts) do
    wanted = wanted and try(command)
  end
  for _, command in ipairs(others) do
    if wanted then
      try(command)
    end
  end
  if wanted then
    done[#done + 1] = step
  end
end
if #done > 0 then
  call('HSET', KEYS[1], 'schema', ARGV[1])
  if ARGV[2] == '1' then
    -- An instant: after a failover that has lost a change the next one does not get its number.
    local last = tonumber(call('HGET', KEYS[1], 'changes') or 0)
    call('HSET', KEYS[1], 'changes', string.format('%d', math.max(last + 1, time[1] * 1000000 + time[2])))
  end
  if notice then
    call('XADD', KEYS[2], '*', unpack(notice))
  end
end
return { time[1] * 1000000 + time[2], done, errors }
