package human

import "strings"

// Diff returns the lines that differ, with + or - before them and those that lead to them.
func Diff(before, after []string) (changes []string) {
	common := make([][]int, len(before)+1) // the longest common lines from i and k on
	for i := range common {
		common[i] = make([]int, len(after)+1)
	}
	for i := len(before) - 1; i >= 0; i-- {
		for k := len(after) - 1; k >= 0; k-- {
			if common[i][k] = max(common[i+1][k], common[i][k+1]); before[i] == after[k] {
				common[i][k] = common[i+1][k+1] + 1
			}
		}
	}
	var path []string // the lines that the present one lies under
	shown := 0
	add := func(sign, line string) {
		depth := len(line) - len(strings.TrimLeft(line, " "))
		for n, above := range path {
			if len(above)-len(strings.TrimLeft(above, " ")) >= depth {
				path = path[:n]
				break
			}
		}
		if sign != " " {
			for ; shown < len(path); shown++ {
				changes = append(changes, "  "+path[shown])
			}
			changes = append(changes, sign+" "+line)
		}
		path = append(path, line)
		shown = min(shown, len(path)-1)
		if sign != " " {
			shown = len(path)
		}
	}
	i, k := 0, 0
	for i < len(before) || k < len(after) {
		switch {
		case i < len(before) && k < len(after) && before[i] == after[k]:
			add(" ", before[i])
			i, k = i+1, k+1
		case k == len(after) || i < len(before) && common[i+1][k] >= common[i][k+1]:
			add("-", before[i])
			i++
		default:
			add("+", after[k])
			k++
		}
	}
	return changes
}
