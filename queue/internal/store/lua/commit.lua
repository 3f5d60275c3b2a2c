-- commit makes the leader's decisions last, all or none. It decides nothing: it checks that the
-- leader still leads and that everything is as the leader saw it, then does what it is told.
--
-- KEYS[1]  meta; others are named in ARGV by their number
-- ARGV[1]  the leader's token
-- ARGV[2]  lease of the leader in µs
-- ARGV[3]  number of this commit: one more than that of the last
-- ARGV[4]  number of changes (pauses, policies, ...) that the leader knows of
-- ARGV[5]  ID of the last mail whose effects are in this commit, or ""
-- then seven lists, each after its length:
--   counts   counters in meta; then, without a length, by how much each is more
--   checks   lane key more n entry... (the first n entries of a list begin so; as many more as
--            a refill asks for are read with them)
--            is command key name wanted (a look for a name finds it, if wanted is 1, or does not),
--            fold key name stamp (a hash has a value that begins so), expired key name silence (a
--            sorted set has a score before now, or none, and workers could renew their leases: the
--            last did so within that many µs)
--   folded   key of claims, claim, key of a fold, collapse key: the job under the key is claimed,
--            whichever is there by now
--   writes   n command key argument...: n arguments. Where one fails nothing has been done if it
--            is the first; those that can fail for a key of another type stand first
--   told     key of a worker's hand, message: the instant and a space are put before it
--   extras   as writes; where one fails, the others are done, and the reply says so
--   refills  key of a lane, key of its index, user, n, check: returns its first n entries, and takes
--            an empty lane out of the index; the entries are those that a check has read behind
--            the ones that leave, or are read now if the number of that is 0
--
-- Returns {now, "ok", 1 if the leader's lease had run out before, changes, errors, refills}, or
-- {now, "deposed"}, {now, "changed", changes}, {now, "order", last number} or {now, "differs",
-- numbers of the checks that failed}, where nothing was done.

local call, sub, find = redis.call, string.sub, string.find
local meta = call('HMGET', KEYS[1], 'leader', 'till', 'seq', 'changes')
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if meta[1] ~= ARGV[1] then
  return { now, 'deposed' }
elseif tonumber(meta[3] or 0) + 1 ~= tonumber(ARGV[3]) then
  return { now, 'order', tonumber(meta[3] or 0) }
elseif (meta[4] or '0') ~= ARGV[4] then
  return { now, 'changed', tonumber(meta[4] or 0) }
end

local at = 6
local function list()
  at = at + 1
  return tonumber(ARGV[at - 1])
end
local counters = list()
local counted = counters > 0 and call('HMGET', KEYS[1], unpack(ARGV, at, at + counters - 1)) or {}
local news = { 'seq', ARGV[3] }
for i = 1, counters do
  news[2 * i + 1], news[2 * i + 2] = ARGV[at + i - 1], string.format('%d', (counted[i] or 0) + ARGV[at + counters + i - 1])
end
at = at + 2 * counters
local function key(i)
  return KEYS[tonumber(ARGV[i])]
end

-- The checks: each returns whether all is as it was, and how many arguments it has.
local check, rest = {}, {}
function check.lane(i, number)
  local more, n = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local entries = call('LRANGE', key(i), '0', n + more - 1)
  local same = #entries >= n
  rest[number] = { unpack(entries, n + 1) }
  for k = 1, math.min(n, #entries) do
    local want = ARGV[i + 2 + k]
    local stamped = sub(want, 1, 1) ~= '=' -- a stub stands for a collapse key
    same = same and (entries[k] == want or (stamped and sub(entries[k], 1, 13) == want))
  end
  return same
end
function check.is(i)
  local found = call(ARGV[i], key(i + 1), ARGV[i + 2])
  return (found ~= false and found ~= 0) == (ARGV[i + 3] == '1')
end
function check.fold(i)
  local value = call('HGET', key(i), ARGV[i + 1])
  return value ~= false and find(value, ARGV[i + 2], 1, true) == 1
end
function check.expired(i)
  local lives = call('HMGET', KEYS[1], 'amnesty', 'beat')
  return tonumber(call('ZSCORE', key(i), ARGV[i + 1]) or 0) < now and
    tonumber(lives[1] or 0) <= now and now - tonumber(lives[2] or 0) <= tonumber(ARGV[i + 2])
end
local arity = { is = 4, fold = 3, expired = 3 }

local differs = {}
for number = 1, list() do
  local kind = ARGV[at]
  local fine, same = pcall(check[kind], at + 1, number)
  if not (fine and same) then
    differs[#differs + 1] = number
  end
  at = at + 1 + (arity[kind] or (3 + tonumber(ARGV[at + 3])))
end
if #differs > 0 then
  return { now, 'differs', differs }
end

for _ = 1, list() do
  local job = call('HGET', key(at + 2), ARGV[at + 3])
  if job then
    call('HSET', key(at), ARGV[at + 1], '.' .. job)
    call('HDEL', key(at + 2), ARGV[at + 3])
  end
  at = at + 4
end
for _ = 1, list() do
  local n = tonumber(ARGV[at])
  call(ARGV[at + 1], key(at + 2), unpack(ARGV, at + 3, at + 2 + n))
  at = at + 3 + n
end
-- Only now: what failed before has not happened.
local lapsed = tonumber(meta[2] or 0) < now and 1 or 0
if ARGV[5] ~= '' then
  news[#news + 1], news[#news + 2] = 'mail', ARGV[5]
end
call('HSET', KEYS[1], 'till', string.format('%d', now + ARGV[2]), unpack(news))
for _ = 1, list() do
  call('RPUSH', key(at), string.format('%d', now) .. ' ' .. ARGV[at + 1])
  at = at + 2
end
local errors = {}
for _ = 1, list() do
  local n = tonumber(ARGV[at])
  local fine, why = pcall(call, ARGV[at + 1], key(at + 2), unpack(ARGV, at + 3, at + 2 + n))
  if not fine then
    errors[#errors + 1] = ARGV[at + 1] .. ' ' .. key(at + 2) .. ': ' .. (type(why) == 'table' and why.err or tostring(why))
  end
  at = at + 3 + n
end
local refills = {}
at = at + 1 -- and not by list(): a failed pcall parts it from its "at" in the embedded Redis
for number = 1, tonumber(ARGV[at - 1]) do
  local fine, entries = true, rest[tonumber(ARGV[at + 4])]
  if not entries then
    fine, entries = pcall(call, 'LRANGE', key(at), '0', tonumber(ARGV[at + 3]) - 1)
  end
  if fine and #entries == 0 then
    pcall(call, 'ZREM', key(at + 1), ARGV[at + 2])
  end
  refills[number] = fine and entries or {}
  at = at + 5
end
return { now, 'ok', lapsed, tonumber(meta[4] or 0), errors, refills }
