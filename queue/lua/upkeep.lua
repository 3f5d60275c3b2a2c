-- upkeep: what any pull does for the whole queue before it looks for jobs. Prepended,
-- after the claims, to pull.

local SWEEP = 1000 -- members of an index that one call looks at

-- unheard hands back what a pull took whose reply was lost: the tokens from first to last.
local function unheard(first, last)
  for token = last, first, -1 do
    local claim = claim_of(int(token))
    if claim then
      unspend(claim)
      put_back(claim)
    end
  end
end

-- first_score returns the least score of a sorted set.
local function first_score(key)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or INFINITY)
end

-- take_back returns the jobs of expired leases to their lanes, unless an amnesty holds.
-- Returns when there is more to take back.
local function take_back(amnesty)
  local soonest = max(first_score(Q .. 'leases'), amnesty)
  if soonest > now then
    return soonest
  end
  local stale = call('ZRANGEBYSCORE', Q .. 'leases', '-inf', int(now), 'LIMIT', 0, 100)
  for _, token in ipairs(newest_first(stale)) do
    local claim = claim_of(token)
    if claim then
      failed(claim, 'the lease expired: its worker died or lost Redis', false, put_back)
    else
      call('ZREM', Q .. 'leases', token)
    end
  end
  return first_score(Q .. 'leases')
end

-- mature moves the jobs whose time has come from `later` into their lanes: a job that
-- was attempted already to the front, since it is the oldest. Returns when the next
-- ones are ripe.
local function mature()
  local soonest = first_score(Q .. 'later')
  if soonest > now then
    return soonest
  end
  local ripe = call('ZRANGEBYSCORE', Q .. 'later', '-inf', int(now), 'LIMIT', 0, 100)
  for _, member in ipairs(ripe) do
    local name, user, envelope = string.match(member, '^([^: ]*):([^: ]*) (.*)$')
    local job = read_job(envelope)
    enter(tenant_of(name), user, job, envelope, at_once, job.failures > 0 and 'front' or 'back')
  end
  call('ZREM', Q .. 'later', unpack(ripe))
  return first_score(Q .. 'later')
end

-- sweep lowers the bounds of an index to now, a part at a time: they were computed
-- under rules that no longer hold. Returns whether it is through.
local function sweep(index)
  local stale = call('ZRANGEBYSCORE', index, '(' .. int(now), '+inf', 'LIMIT', 0, SWEEP)
  for _, member in ipairs(stale) do
    call('ZADD', index, int(now), member)
  end
  return #stale < SWEEP
end

local function sweep_tenant(tenant)
  if tenant.swept ~= version then
    local through = true
    for priority in string.gmatch(tenant.priorities, '%d') do
      through = sweep(lanes_key(tenant, priority)) and through
    end
    if through then
      tenant.swept = version
      call('HSET', tenant.key, 'swept', version)
    end
  end
end
