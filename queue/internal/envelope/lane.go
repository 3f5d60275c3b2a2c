package envelope

import (
	"cmp"
	"fmt"
	"strings"
)

// A Lane is the FIFO line of one user's waiting jobs of one priority, and of those only the ones that wait for the same
// limits by name. Two lanes are the same if they are equal (==). The zero value stands for no lane, since every job has a
// tenant and a user.
type Lane struct {
	Tenant, User string // as users have named them, not escaped
	Priority     int    // a rank
	Label        string // of the limits by name; "" for none. It has no space, colon or bar
}

// CompareLanes orders lanes by tenant, user, priority and label.
func CompareLanes(a, b Lane) int {
	return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.User, b.User), cmp.Compare(a.Priority, b.Priority),
		strings.Compare(a.Label, b.Label))
}

// SameUser reports whether two lanes are of one user.
func (l Lane) SameUser(other Lane) bool { return l.Tenant == other.Tenant && l.User == other.User }

// Name returns the lane as it stands in notices, in claims and under IDs: "tenant:user:rank", or "tenant:user|label:rank",
// with escaped names.
func (l Lane) Name() string {
	return string(l.appendName(make([]byte, 0, 64)))
}

func (l Lane) appendName(b []byte) []byte {
	b = append(append(b, Escape(l.Tenant)...), ':')
	b = append(l.appendMember(b), ':')
	return append(b, '0'+byte(l.Priority))
}

func (l Lane) appendMember(b []byte) []byte {
	b = append(b, Escape(l.User)...)
	if l.Label != "" {
		b = append(append(b, '|'), l.Label...)
	}
	return b
}

// Member returns the lane's name among those of its tenant and priority, as it stands in their index and in keys: the
// escaped user, and the label behind a bar.
func (l Lane) Member() string {
	if l.Label == "" {
		return Escape(l.User)
	}
	return string(l.appendMember(nil))
}

// ParseMember reads what [Lane.Member] wrote.
func ParseMember(member string) (user, label string) {
	user, label, _ = strings.Cut(member, "|")
	return Unescape(user), label
}

// ParseLane reads a lane's name. Other words that stand where lanes do, such as "cancelled" under an ID, are an error.
func ParseLane(name string) (Lane, error) {
	tenant, rest, ok1 := strings.Cut(name, ":")
	member, rank, ok2 := strings.Cut(rest, ":")
	if !ok1 || !ok2 || len(rank) != 1 || rank[0] < '0' || rank[0] > '2' {
		return Lane{}, fmt.Errorf("malformed lane %q", name)
	}
	user, label := ParseMember(member)
	return Lane{Unescape(tenant), user, int(rank[0] - '0'), label}, nil
}

// A scope says whom rules and pauses are for: the queue, a tenant, a tenant's user, or the values of a limit's key. It is
// written "q", "t:tenant", "u:tenant:user" or "l:limit:value", with escaped names. QueueScope is that of the queue.
const QueueScope = "q"

// TenantScope returns the scope of a tenant.
func TenantScope(tenant string) string { return "t:" + Escape(tenant) }

// UserScope returns the scope of a tenant's user.
func UserScope(tenant, user string) string { return "u:" + Escape(tenant) + ":" + Escape(user) }

// PersonScope returns the scope under which stands what is known of the clock of a tenant's user. No rules or pauses have it.
func PersonScope(tenant, user string) string { return Person + Escape(tenant) + ":" + Escape(user) }

// Person begins the scopes of users' clocks.
const Person = "p:"

// LimitScope begins the scopes of limits by name: "l:domain:gmail.com".
const LimitScope = "l:"

// ScopeOfLimit returns the scope of a limit by name, for the values of its key.
func ScopeOfLimit(limit string, values []string) string {
	scope := LimitScope + limit
	for _, value := range values {
		scope += ":" + limitEscape.Replace(value)
	}
	return scope
}

// ParseLimitScope reads the scope of a limit by name: its name, and the values of its key.
func ParseLimitScope(scope string) (limit string, values []string, is bool) {
	rest, is := strings.CutPrefix(scope, LimitScope)
	words := strings.Split(rest, ":")
	for _, word := range words[1:] {
		values = append(values, Unescape(word))
	}
	return words[0], values, is
}

// Escape writes a name so that it holds no colon, space or bar: they separate names in
// keys, words in claims, and a user from a label. No two names are escaped alike.
func Escape(name string) string {
	for i := range len(name) { // each job asks several times: strings.ContainsAny would take three times as long
		switch name[i] {
		case '%', ':', ' ', '|':
			return escaper.Replace(name)
		}
	}
	return name
}

var (
	escaper = strings.NewReplacer("%", "%25", ":", "%3A", " ", "%20", "|", "%7C")
	// A scope of a limit is read by others, too, who know nothing of labels.
	limitEscape = strings.NewReplacer("%", "%25", ":", "%3A", " ", "%20")
	unescaper   = strings.NewReplacer("%25", "%", "%3A", ":", "%20", " ", "%7C", "|")
)

// Unescape reads what Escape wrote.
func Unescape(name string) string {
	if !strings.Contains(name, "%") {
		return name
	}
	return unescaper.Replace(name)
}

// ParseScope reads a scope: the tenant, if it is not the queue's or a limit's, and the user, if it is one's.
func ParseScope(scope string) (tenant, user string) {
	kind, rest, _ := strings.Cut(scope, ":")
	if kind == QueueScope || strings.HasPrefix(scope, LimitScope) {
		return "", ""
	}
	tenant, user, _ = strings.Cut(rest, ":")
	return Unescape(tenant), Unescape(user)
}
