-- ack acknowledges finished jobs, when no pull is near that could carry it.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  then the tokens of finished jobs
--
-- Returns now in µs.

done({ unpack(ARGV, 1) })
finish()
return now
