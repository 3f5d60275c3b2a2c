package api

import (
	"errors"
	"strings"

	"github.com/waterclock/waterclock/queue"
)

// A NewUserClock is a request to note the clock of a tenant's user, in place of what was known of it.
type NewUserClock struct {
	Tenant string `json:"tenant"`
	User   string `json:"user"`
	Zone   string `json:"zone,omitempty"`
	Quiet  string `json:"quiet,omitempty"`
}

func putUser(c *call, in NewUserClock) (clock queue.UserClock, err error) {
	for field, value := range map[string]string{"/tenant": in.Tenant, "/user": in.User} {
		if value == "" {
			return clock, wrongField(field, "is missing", "want a name")
		}
	}
	err = c.inspector.SetUser(c.ctx, in.Tenant, in.User, queue.UserClock{Zone: in.Zone, Quiet: in.Quiet})
	if errors.Is(err, queue.ErrInvalidJob) {
		what := strings.TrimPrefix(err.Error(), queue.ErrInvalidJob.Error()+": ")
		return clock, wrongField("", what, "want a zone such as Europe/Paris, and hours such as 21:30-07:00")
	}
	if err != nil {
		return clock, err
	}
	return c.inspector.User(c.ctx, in.Tenant, in.User)
}
