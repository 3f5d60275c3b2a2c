package envelope

import (
	"fmt"
	"strings"
)

// A Lane is the FIFO line of one user's waiting jobs of one priority. Two lanes are the same if they are equal (==).
// The zero value stands for no lane, since every job has a tenant and a user.
type Lane struct {
	Tenant, User string // as users have named them, not escaped
	Priority     int    // a rank
}

// Name returns the lane as it stands in notices, in claims and under IDs: "tenant:user:rank", with escaped names.
func (l Lane) Name() string {
	return string(l.appendName(make([]byte, 0, 64)))
}

func (l Lane) appendName(b []byte) []byte {
	b = append(append(b, Escape(l.Tenant)...), ':')
	b = append(append(b, Escape(l.User)...), ':')
	return append(b, '0'+byte(l.Priority))
}

// ParseLane reads a lane's name. Other words that stand where lanes do, such as "cancelled" under an ID, are an error.
func ParseLane(name string) (Lane, error) {
	tenant, rest, ok1 := strings.Cut(name, ":")
	user, rank, ok2 := strings.Cut(rest, ":")
	if !ok1 || !ok2 || len(rank) != 1 || rank[0] < '0' || rank[0] > '2' {
		return Lane{}, fmt.Errorf("malformed lane %q", name)
	}
	return Lane{Unescape(tenant), Unescape(user), int(rank[0] - '0')}, nil
}

// A scope says whom rules and pauses are for: the queue, a tenant, or a tenant's user. It is written "q", "t:tenant" or
// "u:tenant:user", with escaped names. QueueScope is that of the queue.
const QueueScope = "q"

// TenantScope returns the scope of a tenant.
func TenantScope(tenant string) string { return "t:" + Escape(tenant) }

// UserScope returns the scope of a tenant's user.
func UserScope(tenant, user string) string { return "u:" + Escape(tenant) + ":" + Escape(user) }

// Escape writes a name so that it holds no colon and no space: they separate names in
// keys, and words in claims. No two names are escaped alike.
func Escape(name string) string {
	if !strings.ContainsAny(name, "%: ") {
		return name
	}
	return strings.NewReplacer("%", "%25", ":", "%3A", " ", "%20").Replace(name)
}

// Unescape reads what Escape wrote.
func Unescape(name string) string {
	if !strings.Contains(name, "%") {
		return name
	}
	return strings.NewReplacer("%25", "%", "%3A", ":", "%20", " ").Replace(name)
}

// ParseScope reads a scope: the tenant, if it is not the queue's, and the user, if it is one's.
func ParseScope(scope string) (tenant, user string) {
	kind, rest, _ := strings.Cut(scope, ":")
	if kind == QueueScope {
		return "", ""
	}
	tenant, user, _ = strings.Cut(rest, ":")
	return Unescape(tenant), Unescape(user)
}
