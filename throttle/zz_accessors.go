package throttle

import "time"

func (r Rule) Kind() string          { return string(r.kind) }
func (r Rule) Limit() int            { return r.limit }
func (r Rule) Period() time.Duration { return r.period }
func (r Rule) Burst() int            { return r.burst }
func (r Rule) Buckets() int          { return r.buckets }
