package queue

import (
	"context"
	"errors"
	"time"

	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// SetPolicies replaces the policies of the queue. They are checked whole first; the
// error says what is wrong and nothing changes. The next start obeys them, also of a job
// that waits already. Setting the same policies again changes nothing. Overrides stay
// ([Inspector.Override]).
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
	for {
		before, version, err := i.kept(ctx)
		if err != nil && !errors.Is(err, ErrInvalidPolicies) { // what nobody can read is replaced
			return err
		}
		if expected >= 0 && expected != version {
			return i.failed("setting the policies of", ErrPoliciesChanged)
		}
		f := p.file()
		f.Overrides = before.Overrides
		if again, err := i.putInForce(ctx, f, version, i.note); !again || expected >= 0 {
			return err
		}
	}
}

// kept returns the policies that Redis keeps, with their overrides, and their version.
func (i *Inspector) kept(ctx context.Context) (f policyfile.File, version int64, err error) {
	source, version, err := i.store.Policies(ctx)
	if err != nil || version == 0 {
		return f, version, i.wrapped("reading the policies of", err)
	}
	f, err = policyfile.ParseKept("policies of queue "+i.store.Queue, []byte(source))
	return f, version, err
}

// putInForce replaces the policies of a version. Again says that others were put in force meanwhile.
func (i *Inspector) putInForce(ctx context.Context, f policyfile.File, version int64, note Note) (again bool, err error) {
	parts, err := i.each(ctx)
	if err != nil {
		return false, err
	}
	if f.Partitions == 0 && len(parts) > 1 {
		f.Partitions = len(parts)
	}
	source, err := f.Source()
	if err != nil {
		return false, err
	}
	_, err = i.store.SetPolicies(ctx, store.NewPolicies{Source: source, Expected: version, Note: note.store(), Partitions: f.Partitions})
	if err != nil {
		return errors.Is(err, ErrPoliciesChanged), i.failed("setting the policies of", err)
	}
	_ = i.store.Register(ctx) // the list of queues is only shown: a queue that is missing there works
	return false, i.copyPolicies(ctx)
}

// copyPolicies lets all partitions have the policies in force. Those that cannot be reached get them from whoever leads there.
func (i *Inspector) copyPolicies(ctx context.Context) error {
	source, version, err := i.store.Policies(ctx)
	if err != nil {
		return i.failed("reading the policies of", err)
	}
	return doEach(ctx, i, func(p *Inspector) error {
		if p.store.Of == 1 { // it has them
			return nil
		}
		err := p.store.CopyPolicies(ctx, store.PolicyVersion{Version: version, Source: source}, p.store.Of)
		return p.wrapped("the policies are in force, but not yet everywhere; setting them in", err)
	})
}

// A PolicyVersion is one set of policies that was put in force.
type PolicyVersion struct {
	Version  int64     // higher than that of any earlier one; 0 means that none were ever set
	Policies Policies  // the zero value for version 0
	Since    time.Time // when they were set
	Note

	Overrides []Override // those that were in force then
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
	f, err := policyfile.ParseKept("policies of queue "+i.store.Queue, []byte(v.Source))
	return PolicyVersion{v.Version, policiesOf(f), envelope.Instant(v.Version), Note{v.Author, v.Reason}, overridesOf(f, v.Version)}, err
}
