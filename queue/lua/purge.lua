-- purge drops the jobs that wait in a tenant's lanes, a part at a time.
--
-- KEYS[1]  prefix of the queue's keys
-- ARGV[1]  tenant
-- ARGV[2]  the most jobs to drop
--
-- Returns how many were dropped.

local tenant, most, dropped = tenant_of(ARGV[1]), tonumber(ARGV[2]), 0
for priority in string.gmatch(tenant.priorities, '%d') do
  while dropped < most do
    local user = redis.call('ZRANGE', lanes_key(tenant, priority), 0, 0)[1]
    if not user then
      break
    end
    discard(tenant, user, priority, 'purged')
    dropped = dropped + 1
  end
end
finish()
return dropped
