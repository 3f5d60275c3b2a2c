-- refund gives a slot that was spent and not used back to the rules of its subjects.
--
-- KEYS[i]    subject i
-- ARGV[1]    the slot in microseconds
-- ARGV[2]    its cost
-- ARGV[3]    1 if a shadow rule objected, and so no shadow rule was spent
-- ARGV[3+i]  compiled rules of subject i
--
-- Returns 0.

local now, subjects = clock(), {}
for i = 1, #KEYS do
  subjects[i] = read_subject(KEYS[i], parse(ARGV[3 + i]))
end
refund(subjects, tonumber(ARGV[1]), tonumber(ARGV[2]), now, ARGV[3] == '1')
return 0
