-- fail ends an attempt that did not succeed: the job waits for its next one, or is
-- buried if that was the last.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  token
-- ARGV[2]  µs until the next attempt, or -1 for none
-- ARGV[3]  the error, for people
--
-- Returns {now, outcome}: 0 the claim was lost, 1 it will be attempted again, 2 buried.

local claim = claim_of(ARGV[1])
if not claim then
  return { now, 0 }
end
local delay, outcome = tonumber(ARGV[2]), 2
failed(claim, ARGV[3], delay < 0, function()
  outcome = 1
  forget({ claim.token })
  track(claim.job, place_of(claim.tenant, claim.user, claim.job))
  claim.job.ready = now + delay
  later(claim.tenant, claim.user, write_job(claim.job), now + delay)
end)
finish()
return { now, outcome }
