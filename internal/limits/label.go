package limits

import (
	"strings"

	"github.com/waterclock/waterclock/internal/policyfile"
)

// A queue lets jobs wait in one line if they wait for the same limits. What tells the lines of a user apart is a label:
// the names of the limits by name that a job is subject to, each with the values of its key beside the tenant and
// the user, which the line has anyhow:
//
//	marketing&domain=gmail.com
//
// Who counts the jobs of a line, since how many may wait is bounded, has to be known without the policies: the part of such a
// limit begins with a plus sign, and has the values of all fields of its key, as in +per_user=shop,ann.
//
// It has no space, colon or bar. From the label, the tenant and the user it can be said which limits the jobs of a line are
// subject to, without reading one. Under other policies a label may be out of date: then the jobs say something else.

// AppendLabel adds a limit that a job is subject to, as the next part of the label of its line. Whole says that the limit counts
// the jobs that wait.
func (u Use[B]) AppendLabel(b []byte, whole bool) []byte {
	if len(b) > 0 {
		b = append(b, '&')
	}
	if whole {
		b = append(b, '+')
	}
	b = append(b, u.Limit...)
	sign := byte('=')
	for i, field := range u.Fields {
		if whole || field != Tenant && field != User {
			b = append(append(b, sign), labelEscape.escape(u.Values[i])...)
			sign = ','
		}
	}
	return b
}

var (
	labelEscape   = newEscaper("%: |&=,", "%", "%25", ":", "%3A", " ", "%20", "|", "%7C", "&", "%26", "=", "%3D", ",", "%2C")
	labelUnescape = strings.NewReplacer("%25", "%", "%3A", ":", "%20", " ", "%7C", "|", "%26", "&", "%3D", "=", "%2C", ",")
)

// Labelled returns the limits of a label: those that there still are, with the same fields in their keys. What a job costs of
// them is not known: Cost is 1 for those that count jobs, 0 for those that count the cost of a job, and -1 for
// those that count a unit.
func (s *Set[B]) Labelled(tenant, user, label string) (uses []Use[B]) {
	if label == "" {
		return nil
	}
	for _, part := range strings.Split(label, "&") {
		part, whole := strings.CutPrefix(part, "+")
		name, text, has := strings.Cut(part, "=")
		var own []string
		if has {
			own = strings.Split(text, ",")
		}
		l := s.find(name)
		if l == nil {
			continue
		}
		var values []string
		for _, field := range l.Key {
			switch {
			case field == Tenant && !whole:
				values = append(values, tenant)
			case field == User && !whole:
				values = append(values, user)
			case len(own) > 0:
				values, own = append(values, labelUnescape.Replace(own[0])), own[1:]
			}
		}
		bounds := l.of(values)
		if len(own) > 0 || len(values) != len(l.Key) || bounds.Unlimited {
			continue
		}
		uses = append(uses, Use[B]{name, l.Key, values, l.unknownCost(), bounds.compiled})
	}
	return uses
}

// unknownCost is what a job costs of which nothing is known.
func (l *limit[B]) unknownCost() int {
	switch l.Counts {
	case policyfile.CountsJobs:
		return 1
	case "":
		return 0
	}
	return -1
}
