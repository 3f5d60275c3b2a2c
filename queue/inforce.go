package queue

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// SetPolicies replaces the policies of the queue. They are checked whole first; the
// error says what is wrong and nothing changes. The next start obeys them, also of a job
// that waits already. Setting the same policies again changes nothing.
func (i *Inspector) SetPolicies(ctx context.Context, p Policies) error {
	return i.setPolicies(ctx, p, -1)
}

// ReplacePolicies is [Inspector.SetPolicies] for policies that were read, changed and are to
// be written back: it fails with [ErrPoliciesChanged], and changes nothing, if others are in
// force than those of the version that was read.
func (i *Inspector) ReplacePolicies(ctx context.Context, version int64, p Policies) error {
	return i.setPolicies(ctx, p, version)
}

func (i *Inspector) setPolicies(ctx context.Context, p Policies, expected int64) error {
	if err := p.Validate(); err != nil {
		return err
	}
	source, err := p.file().Source()
	if err != nil {
		return err
	}
	_, err = i.store.SetPolicies(ctx, store.NewPolicies{Source: source, Expected: expected, Note: i.note.store()})
	if err != nil {
		return i.failed("setting the policies of", err)
	}
	_ = i.store.Register(ctx) // the list of queues is only shown: a queue that is missing there works
	return nil
}

// A PolicyVersion is one set of policies that was put in force.
type PolicyVersion struct {
	Version  int64     // higher than that of any earlier one; 0 means that none were ever set
	Policies Policies  // the zero value for version 0
	Since    time.Time // when they were set
	Note
}

// Policies returns the policies in force with their version, for [Inspector.ReplacePolicies].
// Version 0 means that none were ever set.
func (i *Inspector) Policies(ctx context.Context) (PolicyVersion, error) {
	source, version, err := i.store.Policies(ctx)
	if err != nil || version == 0 {
		return PolicyVersion{}, i.wrapped("reading the policies of", err)
	}
	return i.policyVersion(store.PolicyVersion{Version: version, Source: source})
}

// PolicyHistory returns the newest policies that were put in force, newest first, at most n.
// Redis keeps the last thousand, or a few more.
func (i *Inspector) PolicyHistory(ctx context.Context, n int) ([]PolicyVersion, error) {
	if n < 1 {
		return nil, nil
	}
	versions, err := i.store.History(ctx, n)
	if err != nil {
		return nil, i.failed("reading the policies of", err)
	}
	all := make([]PolicyVersion, len(versions))
	for k, v := range versions {
		if all[k], err = i.policyVersion(v); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (i *Inspector) policyVersion(v store.PolicyVersion) (PolicyVersion, error) {
	p, err := ParsePolicies("policies of queue "+i.store.Queue, []byte(v.Source))
	return PolicyVersion{v.Version, p, envelope.Instant(v.Version), Note{v.Author, v.Reason}}, err
}
