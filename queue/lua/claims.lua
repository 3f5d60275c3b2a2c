-- claims: jobs that were pulled and are not yet done. Prepended, after the lanes, to
-- the scripts that deal with them.
--
-- A claim is named by its token, a number given once. Whoever holds a token that is no
-- longer in `running` has lost the job and can do nothing to it.

-- claim_of returns the claim of a token, or nothing.
local function claim_of(token)
  local text = redis.call('HGET', Q .. 'running', token)
  if not text then
    return
  end
  local slot, tenant, user, envelope = string.match(text, '^(%d+) ([^: ]*):([^: ]*) (.*)$')
  return {
    token = token, slot = tonumber(slot), tenant = tenant_of(tenant), user = user,
    envelope = envelope, job = read_job(envelope),
  }
end

-- amnesty_after returns until when no lease is taken back, given when a worker last
-- reached Redis. After a gap in which none did, none could renew its leases: they all
-- hold for one lease longer. A gap that is too short for this leaves a quarter of a lease
-- to renew them in, since they are renewed three times a lease. Even an idle worker pulls
-- as often as that.
local function amnesty_after(last, amnesty, lease)
  if now - tonumber(last or now) > 0.4 * lease then
    return now + lease
  end
  return tonumber(amnesty or 0)
end

local function forget(tokens)
  local held = redis.call('HDEL', Q .. 'running', unpack(tokens))
  redis.call('ZREM', Q .. 'leases', unpack(tokens))
  return held
end

-- done ends the claims of jobs that need no more attempts.
local function done(tokens)
  if #tokens > 0 then
    count('done', forget(tokens))
  end
end

local function subjects_of(claim)
  return { queue, claim.tenant.subject, user_of(claim.tenant, claim.user) }
end

-- unspend gives the slot of a claim that was not started back to the rules.
local function unspend(claim)
  refund(subjects_of(claim), claim.slot, claim.job.cost, now)
  look_again(claim.tenant, claim.user)
  tally(claim.tenant, 'started', -1)
end

-- put_back ends a claim and returns its job to the front of the lane.
local function put_back(claim)
  forget({ claim.token })
  track(claim.job, place_of(claim.tenant, claim.user, claim.job))
  claim.job.ready = now
  enter(claim.tenant, claim.user, claim.job, write_job(claim.job), at_once, 'front')
end

-- newest_first orders tokens so that jobs put back one by one keep their order.
local function newest_first(tokens)
  table.sort(tokens, function(a, b) return tonumber(a) > tonumber(b) end)
  return tokens
end

-- failed counts an attempt that did not succeed. The job is buried if that was the
-- last; otherwise `again` says what becomes of it.
local function failed(claim, why, last, again)
  claim.job.failures = claim.job.failures + 1
  tally(claim.tenant, 'failed', 1)
  if last or claim.job.failures > claim.job.max_retry then
    forget({ claim.token })
    bury(claim.tenant, claim.user, claim.job, why)
  else
    again(claim)
  end
end
