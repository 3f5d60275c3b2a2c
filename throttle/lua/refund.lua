-- refund gives a slot that was spent and not used back to the rules of its subjects.
--
-- KEYS     the subjects, then the lists of their logs that may be long
-- ARGV[1]  the slot in microseconds
-- ARGV[2]  1 if a shadow rule objected, and so no shadow rule was spent
-- ARGV     then for each subject its cost and its compiled rules, a list
--
-- Returns 0.

local now, subjects = clock(), {}
for i = 1, #ARGV - 2 do
  subjects[i] = read_subject(KEYS[i], make_rules(cjson.decode(ARGV[2 + i])))
end
refund(subjects, tonumber(ARGV[1]), now, ARGV[2] == '1')
return 0
