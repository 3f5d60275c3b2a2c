-- policies replaces the policies of the queue, all at once. Bounds that were computed
-- under the old rules are swept by the pulls that follow.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  then the fields of the hash and their values in turn
--
-- Returns 1 if the policies changed, 0 if they were the same.

local key = Q .. 'policies'
local old, new, size = redis.call('HGETALL', key), {}, 0
for i = 1, #ARGV, 2 do
  new[ARGV[i]] = ARGV[i + 1]
  size = size + 1
end
local same = #old == 2 * (size + 1) -- the old ones hold the version too
for i = 1, #old, 2 do
  if old[i] ~= 'version' and new[old[i]] ~= old[i + 1] then
    same = false
  end
end
if same then
  return 0
end
redis.call('DEL', key)
for field, text in pairs(new) do
  redis.call('HSET', key, field, text)
end
redis.call('HSET', key, 'version', int(tonumber(version) + 1))
redis.call('HDEL', Q .. 'pulse', 'watch', 'watcher')
wake(now)
return 1
