-- commit makes the leader's decisions last, all or none. It decides nothing: it checks that the
-- leader still leads and that everything is as the leader saw it, then does what it is told.
--
-- KEYS[1]  meta; others are named in ARGV by their number; those of the lanes that jobs leave, in the
--          order of the list of takes, and of the states stand behind them
-- ARGV[1]  the leader's token
-- ARGV[2]  lease of the leader in µs
-- ARGV[3]  number of this commit: one more than that of the last
-- ARGV[4]  number of the last change (pauses, policies, ...) that the leader knows of
-- ARGV[5]  ID of the last notice whose effects are in this commit, or ""
-- ARGV[6]  the instant that Redis's clock has to have reached
-- ARGV[7]  number of the last key before those of lanes and states
-- ARGV[8]  number of counters in meta that change; then their names; then by how much each is more
-- then lists, each after its length:
--   kinds    key type: a key of the queue itself has that type, or is not there. Otherwise nothing is
--            done, and the error names the key
--   takes    more n {entry, key of claims or 0, claim}... (the first n entries of a lane begin so;
--            they leave it, and become those claims; as many more as a refill asks for are read with
--            them)
--   checks   is command key name wanted (a look for a name finds it, if wanted is 1, or does not),
--            fold key name stamp (a hash has a value that begins so), expired key name silence (a
--            sorted set has a score before now, or none, and workers could renew their leases: the
--            last did so within that many µs), type key type (a key has that type, or is not there),
--            ripe key name at (a sorted set has a score up to that), size key n (a hash has n fields)
--   folded   key of claims, claim, key of a fold, collapse key: the job under the key is claimed,
--            whichever is there by now. Behind the name of a digest, which begins with a zero byte, comes
--            the key of its members: if it is still open it is closed, with whoever is a member by now
--   claims   n command key argument...: n arguments; done before anything leaves its lane
--   writes   as claims. None can fail for a key of another type: that was checked. FIRST lane job place fold is this
--            script's own: the job goes to the front of the lane, behind those that have come back, too, and have places
--            before; fold is the number of the key that has the jobs whose stubs may stand there
--   states   ms text: what is remembered so long; nothing, if the text is ""
--   acks     key of claims, n, claim...: n claims end, and those that were still held count as done
--   told     key of a worker's mailbox, message: the instant and a space are put before it
--   extras   as writes; where one fails, the others are done, and the reply says so
--   refills  key of a lane, key of its index, user, n, take: returns its first n entries, and takes
--            an empty lane out of the index; the entries are those that a take has read behind
--            the ones that leave, or are read now if the number of that is 0
--   looks    n command m key... argument...: a command that reads, with n arguments, m of them keys:
--            its reply is returned. BEHIND key score name n is this script's own: the first n members of
--            a sorted set that come behind one of a name and score, which may have left; with scores
--
-- Returns {now, "ok", 1 if the leader's lease had run out before, changes, errors, refills, looks}, or
-- {now, "deposed"}, {now, "changed", changes}, {now, "ahead"}, {now, "order", last number} or {now, "differs",
-- numbers of the checks that failed, below 0 those of takes}, where nothing was done.

local call, sub, find, byte = redis.call, string.sub, string.find, string.byte
local counters = tonumber(ARGV[8])
local meta = call('HMGET', KEYS[1], 'leader', 'till', 'seq', 'changes', 'done', unpack(ARGV, 9, 8 + counters))
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if meta[1] ~= ARGV[1] then
  return { now, 'deposed' }
elseif tonumber(meta[3] or 0) + 1 ~= tonumber(ARGV[3]) then
  return { now, 'order', tonumber(meta[3] or 0) }
elseif (meta[4] or '0') ~= ARGV[4] then
  return { now, 'changed', tonumber(meta[4] or 0) }
elseif now < tonumber(ARGV[6]) then
  return { now, 'ahead' }
end

local news, at, done = { 'seq', ARGV[3] }, 9 + 2 * counters, (meta[5] or 0) + 0
for i = 1, counters do
  news[2 * i + 1], news[2 * i + 2] = ARGV[8 + i], string.format('%d', (meta[5 + i] or 0) + ARGV[8 + counters + i])
end
-- list returns how long the list is that begins there, and where its first item is.
local function list(at) return tonumber(ARGV[at]), at + 1 end
local function key(i) return KEYS[tonumber(ARGV[i])] end

local lanes, takes, n = tonumber(ARGV[7])
n, at = list(at)
for _ = 1, n do
  expect(key(at), ARGV[at + 1])
  at = at + 2
end
takes, at = list(at)
local differs, counts, rest, given, emptied = {}, {}, {}, {}, {} -- lanes of which nothing is left go together
for t = 1, takes do
  local more, n = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local fine, entries = pcall(call, 'LRANGE', KEYS[lanes + t], '0', n + more - 1)
  local same = fine and #entries >= n
  for k = 1, same and n or 0 do
    local entry, i = entries[k], at - 1 + 3 * k
    local want, to = ARGV[i], ARGV[i + 1]
    -- A stub stands for a collapse key; a job begins with its stamp.
    same = same and find(entry, want, 1, true) == 1 and (entry == want or sub(want, 1, 1) ~= '=')
    if to ~= '0' then
      local claims = given[to] or {}
      claims[#claims + 1], claims[#claims + 2], given[to] = ARGV[i + 2], entry, claims
    end
  end
  if not same then
    differs[#differs + 1] = -t
  elseif more > 0 then
    rest[t] = { unpack(entries, n + 1) }
  end
  counts[t], at = n, at + 2 + 3 * n
  if rest[t] and not rest[t][1] then
    emptied[#emptied + 1], counts[t] = KEYS[lanes + t], nil
  end
end

-- The other checks: each returns whether all is as it was.
local check = {}
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
function check.ripe(i)
  local score = call('ZSCORE', key(i), ARGV[i + 1])
  return score ~= false and tonumber(score) <= tonumber(ARGV[i + 2])
end
function check.size(i) return call('HLEN', key(i)) == tonumber(ARGV[i + 1]) end
function check.type(i) return kind(key(i), ARGV[i + 1]) == nil end
local arity = { is = 4, fold = 3, expired = 3, type = 2, ripe = 3, size = 2 }
n, at = list(at)
for number = 1, n do
  local kind = ARGV[at]
  local fine, same = pcall(check[kind], at + 1)
  if not (fine and same) then
    differs[#differs + 1] = number
  end
  at = at + 1 + arity[kind]
end
if #differs > 0 then
  return { now, 'differs', differs }
end

n, at = list(at)
for _ = 1, n do
  local name = ARGV[at + 3]
  local job = call('HGET', key(at + 2), name)
  if job then
    call('HSET', key(at), ARGV[at + 1], job)
    call('HDEL', key(at + 2), name)
  end
  at = at + 4
  if sub(name, 1, 1) == '\0' and sub(name, 2, 2) ~= '\0' then
    local digest, record = compose(not job and call('HGETALL', key(at)) or {}, now)
    if find(record, sub(name, 2, 14), 1, true) == 1 then
      call('HSET', key(at - 4), ARGV[at - 3], digest)
      call('DEL', key(at))
    end
    at = at + 1
  end
end
-- first puts a job at the front of a lane. A job that has come back carries the slot of its first claim, as the first option
-- behind its stamp; its place is the slot and the stamp. These jobs stand at the front in the order of their places: so the
-- place of one more is found by a binary search, which begins at the front.
local SLOT = string.char(26, 13)
local function first(lane, job, place, fold)
  local function precedes(n)
    local entry = call('LINDEX', lane, n) or ''
    if sub(entry, 1, 1) == '=' then
      local fine, folded = pcall(call, 'HGET', fold, sub(entry, 2))
      entry = fine and folded or ''
    end
    return sub(entry, 14, 15) == SLOT and sub(entry, 16, 28) .. sub(entry, 1, 13) < place
  end
  local from, step = 0, 1
  while precedes(from + step - 1) do
    from, step = from + step, 2 * step
  end
  local to = from + step - 1
  while from < to do
    local middle = math.floor((from + to) / 2)
    if precedes(middle) then
      from = middle + 1
    else
      to = middle
    end
  end
  if from == 0 then
    return call('LPUSH', lane, job)
  end
  return call('LINSERT', lane, 'AFTER', call('LINDEX', lane, from - 1), job)
end
local errors, refills, looks = {}, {}, {}
-- write does a list of writes. Where one fails, the script ends; if each stands alone, the others are done.
local function write(at, alone)
  local commands
  commands, at = list(at)
  for _ = 1, commands do
    local n = tonumber(ARGV[at])
    local command, fine, why = ARGV[at + 1]
    if command == 'FIRST' then
      fine, why = pcall(first, key(at + 2), ARGV[at + 3], ARGV[at + 4], key(at + 5))
    else
      fine, why = pcall(call, command, key(at + 2), unpack(ARGV, at + 3, at + 2 + n))
    end
    if not fine and not alone then
      error(why)
    elseif not fine then
      errors[#errors + 1] = ARGV[at + 1] .. ' ' .. key(at + 2) .. ': ' .. (type(why) == 'table' and why.err or tostring(why))
    end
    at = at + 3 + n
  end
  return at
end
for to, claims in pairs(given) do
  call('HSET', KEYS[tonumber(to)], unpack(claims))
end
at = write(at)
for t, n in pairs(counts) do
  call('LTRIM', KEYS[lanes + t], n, '-1')
end
if emptied[1] then
  call('DEL', unpack(emptied))
end
at = write(at)
n, at = list(at)
for state = 1, n do
  local name = KEYS[lanes + takes + state]
  if ARGV[at + 1] == '' then
    call('DEL', name)
  else
    call('PSETEX', name, ARGV[at], ARGV[at + 1])
  end
  at = at + 2
end
n, at = list(at)
for _ = 1, n do
  local to = at + 1 + ARGV[at + 1]
  done = done + call('HDEL', key(at), unpack(ARGV, at + 2, to))
  at = to + 1
end
if n > 0 then
  news[#news + 1], news[#news + 2] = 'done', string.format('%d', done)
end
-- The number, the notice and the lease are written behind all that can end the script: where it has ended
-- before, the number says that the commit has not happened.
if ARGV[5] ~= '' then
  news[#news + 1], news[#news + 2] = 'notice', ARGV[5]
end
call('HSET', KEYS[1], 'till', string.format('%d', now + ARGV[2]), unpack(news))
n, at = list(at)
for _ = 1, n do
  call('RPUSH', key(at), string.format('%d', now) .. ' ' .. ARGV[at + 1])
  at = at + 2
end
at = write(at, true)
n, at = list(at)
for number = 1, n do
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
-- later_name tells whether a name comes behind another one in a sorted set: by its bytes. Lua compares by the locale.
local function later_name(name, other)
  for i = 1, math.min(#name, #other) do
    local a, b = byte(name, i), byte(other, i)
    if a ~= b then
      return a > b
    end
  end
  return #name > #other
end
-- behind finds the place by probes: those before it have left as a rule, so the first are close to where the score begins.
local function behind(set, score, name, n)
  local from = call('ZCOUNT', set, '-inf', '(' .. score)
  local to, step = from + call('ZCOUNT', set, score, score), 1
  while from < to do
    local probe = from + math.min(step, math.ceil((to - from) / 2)) - 1
    if later_name(call('ZRANGE', set, probe, probe)[1], name) then
      to = probe
    else
      from, step = probe + 1, 2 * step
    end
  end
  return call('ZRANGE', set, from, from + n - 1, 'WITHSCORES')
end
n, at = list(at)
for number = 1, n do
  local n, keys = tonumber(ARGV[at]), tonumber(ARGV[at + 2])
  local words = { unpack(ARGV, at + 3, at + 2 + n) }
  for k = 1, keys do
    words[k] = KEYS[tonumber(words[k])]
  end
  local fine, found
  if ARGV[at + 1] == 'BEHIND' then
    fine, found = pcall(behind, unpack(words))
  else
    fine, found = pcall(call, ARGV[at + 1], unpack(words))
  end
  looks[number] = fine and found or {}
  at = at + 3 + n
end
return { now, 'ok', tonumber(meta[2] or 0) < now and 1 or 0, tonumber(meta[4] or 0), errors, refills, looks }
