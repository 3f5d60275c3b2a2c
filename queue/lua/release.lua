-- release hands jobs back that were pulled and not started: they return to the front of
-- their lanes in their old order, and the rules get their slots back.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  name of the worker, which stops watching
-- ARGV[2]  then the tokens
--
-- Returns now in µs.

for _, token in ipairs(newest_first({ unpack(ARGV, 2) })) do
  local claim = claim_of(token)
  if claim then
    unspend(claim)
    put_back(claim)
  end
end
announce()
finish()
if redis.call('HGET', Q .. 'pulse', 'watcher') == ARGV[1] then
  redis.call('HDEL', Q .. 'pulse', 'watch', 'watcher')
  wake(now)
end
return now
