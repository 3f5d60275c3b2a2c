-- digests is what the scripts that close digests begin with, after types. How an envelope is written is in
-- queue/internal/envelope: JoinDigest writes that of an open digest.

-- option returns an option of an envelope: tag, length, value.
local function option(tag, value)
  local n, length = #value, ''
  while n >= 128 do
    length = length .. string.char(n % 128 + 128)
    n = math.floor(n / 128)
  end
  return string.char(tag) .. length .. string.char(n) .. value
end

-- compose returns the envelope of a digest that is closed now, and its record, from the fields of its hash and their values: the
-- field '' has the record.
local function compose(fields, now)
  local record, members = '', {}
  for i = 1, #fields, 2 do
    if fields[i] == '' then
      record = fields[i + 1]
    else
      members[#members + 1] = option(128, fields[i + 1])
    end
  end
  local due = math.min(tonumber(string.match(record, '^%x+ %d+ (%d+)') or 0), now)
  return string.sub(record, 1, 13) .. option(24, string.format('%d', due)) .. table.concat(members) .. '\0\0', record
end
