-- change does what somebody other than the leader has decided, and tells the leader, who
-- commits nothing until it knows. It decides nothing: every step is done if its conditions
-- hold, whatever becomes of the others.
--
-- KEYS[1]  meta
-- KEYS[2]  mail; others are named in ARGV by their number
-- ARGV[1]  schema
-- ARGV[2]  "1" if the leader must know before it commits anything more
-- ARGV[3]  number of words, 0 for no letter; then the letter in subjects and texts
-- then      number of steps, then for each: number of conditions, these, number of commands, these
--   condition  expected reply, command, number of keys, keys, number of arguments, arguments;
--              the reply of a command that finds nothing is ""
--   command    number of arguments, command, key, arguments
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

local at = 3
local function next_word()
  at = at + 1
  return ARGV[at - 1]
end
local function append(words, n, read)
  for _ = 1, n do
    words[#words + 1] = read(next_word())
  end
end
local function key(number) return KEYS[tonumber(number)] end
local function text(word) return word end

local function holds(before)
  local want, words = next_word(), { next_word() }
  append(words, tonumber(next_word()), key)
  append(words, tonumber(next_word()), text)
  if not before then
    return false
  end
  local fine, reply = try(words)
  return fine and tostring(reply or '') == want
end

local letter = { KEYS[2], '*' }
append(letter, tonumber(next_word()), text)
for step = 1, tonumber(next_word()) do
  local wanted = true
  for _ = 1, tonumber(next_word()) do
    wanted = holds(wanted)
  end
  for _ = 1, tonumber(next_word()) do
    local n, words = tonumber(next_word()), { next_word() }
    append(words, 1, key)
    append(words, n, text)
    if wanted then
      try(words)
    end
  end
  if wanted then
    done[#done + 1] = step
  end
end
if #done > 0 then
  call('HSET', KEYS[1], 'schema', ARGV[1])
  if ARGV[2] == '1' then
    call('HINCRBY', KEYS[1], 'changes', '1')
  end
  if #letter > 2 then
    call('XADD', unpack(letter))
  end
end
return { time[1] * 1000000 + time[2], done, errors }
