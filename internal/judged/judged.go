// Package judged says how a log of a queue is judged by its rules, for whoever calls [throttle.Verify].
package judged

import "github.com/waterclock/waterclock/throttle"

// Together returns rules as they are judged: each by itself, but all hours as one, since they are alternatives.
func Together(rules []throttle.Rule) (groups [][]throttle.Rule) {
	hours := -1
	for _, rule := range rules {
		switch {
		case rule.Kind() == throttle.KindHours && hours >= 0:
			groups[hours] = append(groups[hours], rule)
			continue
		case rule.Kind() == throttle.KindHours:
			hours = len(groups)
		}
		groups = append(groups, []throttle.Rule{rule})
	}
	return groups
}

// ByStarts reports whether a rule of a queue holds for the instants at which handlers start: windows, spacings, hours and warm-ups of windows. Others give out
// slots, and hold for these.
func ByStarts(rule throttle.Rule) bool {
	switch rule.Kind() {
	case throttle.KindWindow, throttle.KindSpacing, throttle.KindHours:
		return true
	case throttle.KindWarmup:
		return rule.Unit() == ""
	}
	return false
}
