-- revive puts dead jobs back at the end of their lanes, with all their attempts.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  then the entries of the dead stream
--
-- Returns how many were revived.

local revived = 0
for _, entry in ipairs(ARGV) do
  local found = redis.call('XRANGE', Q .. 'dead', entry, entry)[1]
  if found then
    local fields = {}
    for i = 1, #found[2], 2 do
      fields[found[2][i]] = found[2][i + 1]
    end
    local tenant, job = tenant_of(fields.tenant), read_job(fields.job)
    job.failures, job.offered, job.ready = 0, now, now
    track(job, place_of(tenant, fields.user, job))
    enter(tenant, fields.user, job, write_job(job), at_once, 'back')
    redis.call('XDEL', Q .. 'dead', entry)
    revived = revived + 1
  end
end
announce()
finish()
return revived
