-- types is what the scripts that write begin with: a script does everything that can fail before
-- it writes anything, and commands fail for keys of another type.

-- kind returns the type of a key that has another one than wanted; nothing if it has that, or is
-- not there.
local function kind(key, want)
  local is = redis.call('TYPE', key)
  is = type(is) == 'table' and is.ok or is
  if is ~= want and is ~= 'none' then
    return is
  end
end

-- expect ends the script if a key of the queue itself has another type. Nothing may have been
-- written by then.
local function expect(key, want)
  local is = kind(key, want)
  if is then
    error('BROKEN ' .. key .. ' ' .. is .. ' ' .. want)
  end
end

