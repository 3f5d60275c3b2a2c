-- envelopes: jobs as they travel. Stands, after the rules, before every script of this
-- package; envelope.go is its other half.
--
-- A job travels as an envelope: the instant of its offer, 13 hexadecimal digits and no two
-- alike in a queue, then "-" for a plain job or "+options " for any other, then a body
-- that only Go reads. Options are letters with a value, separated by colons:
--   c cost, d deadline, f failures, r retries, p priority, k collapse key, ! the caller's
--   own ID, which is tracked, i an ID that is neither that nor the instant, n the instant
--   since when it may start, if that is not its offer's

local HIGH, NORMAL, LOW = '0', '1', '2'
local MAX_RETRY = 25 -- DefaultMaxRetry

-- read_job returns what an envelope says of its job.
local function read_job(envelope)
  local stamp = sub(envelope, 1, 13)
  local offered = tonumber(stamp, 16)
  local job = {
    offered = offered, ready = offered, id = stamp, own = false, cost = 1, deadline = 0, failures = 0,
    max_retry = MAX_RETRY, priority = NORMAL, fold = nil, envelope = envelope, body = 15,
  }
  if sub(envelope, 14, 14) == '-' then
    return job
  end
  local options, body = string.match(envelope, '^([^ ]*) ()', 15)
  job.body = body
  for letter, value in string.gmatch(options, '([^:])([^:]*)') do
    if letter == 'c' then
      job.cost = tonumber(value)
    elseif letter == 'd' then
      job.deadline = tonumber(value)
    elseif letter == 'f' then
      job.failures = tonumber(value)
    elseif letter == 'r' then
      job.max_retry = tonumber(value)
    elseif letter == 'p' then
      job.priority = value
    elseif letter == 'k' then
      job.fold = value
    elseif letter == 'n' then
      job.ready = tonumber(value)
    else
      job.id, job.own = value, letter == '!'
    end
  end
  return job
end

local function write_job(job)
  local stamp, options = format('%013x', job.offered), {}
  local function option(letter, value, usual)
    if value ~= usual then
      options[#options + 1] = letter .. (type(value) == 'number' and int(value) or value)
    end
  end
  option('c', job.cost, 1)
  option('d', job.deadline, 0)
  option('f', job.failures, 0)
  option('r', job.max_retry, MAX_RETRY)
  option('p', job.priority, NORMAL)
  option('k', job.fold, nil)
  option('n', job.ready, job.offered)
  option(job.own and '!' or 'i', job.id, not job.own and stamp or nil)
  local head = #options > 0 and '+' .. table.concat(options, ':') .. ' ' or '-'
  return stamp .. head .. sub(job.envelope, job.body)
end
