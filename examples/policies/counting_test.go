package policies

import (
	"strings"

	"github.com/waterclock/waterclock/queue"
)

// A counting returns the key for which a call counts, and how much; "" if a promise is not about it.
type counting func(queue.Job) (key string, n int)

// keyed counts calls that have all of the keys, for their values.
func keyed(names ...string) counting {
	return func(j queue.Job) (string, int) {
		var values []string
		for _, name := range names {
			if j.Keys[name] == "" {
				return "", 0
			}
			values = append(values, j.Keys[name])
		}
		return strings.Join(values, "/"), 1
	}
}

// ofType counts only calls whose type begins so.
func ofType(prefix string, of counting) counting {
	return func(j queue.Job) (string, int) {
		if !strings.HasPrefix(j.Type, prefix) {
			return "", 0
		}
		return of(j)
	}
}

// only counts only calls for one key.
func only(want string, of counting) counting {
	return func(j queue.Job) (string, int) {
		if key, n := of(j); key == want {
			return key, n
		}
		return "", 0
	}
}

// but counts all calls but those for one key.
func but(other string, of counting) counting {
	return func(j queue.Job) (string, int) {
		if key, n := of(j); key != other {
			return key, n
		}
		return "", 0
	}
}

// in counts, instead of calls, what they cost in a unit.
func in(unit string, of counting) counting {
	return func(j queue.Job) (string, int) {
		key, _ := of(j)
		return key, j.Costs[unit]
	}
}

func everyone(queue.Job) (string, int) { return "everyone", 1 }
func tenant(j queue.Job) (string, int) { return j.Tenant, 1 }
func user(j queue.Job) (string, int)   { return j.Tenant + "/" + j.User, 1 }
func typeOf(j queue.Job) (string, int) { return j.Tenant + "/" + j.Type, 1 }

// notCritical counts what may wait when places are short.
func notCritical(j queue.Job) (string, int) {
	if strings.HasPrefix(j.Type, "get.") || strings.HasPrefix(j.Type, "test.") {
		return "not critical", 1
	}
	return "", 0
}
