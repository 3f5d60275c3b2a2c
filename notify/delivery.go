package notify

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/waterclock/waterclock/queue"
)

// A delivery is one attempt to bring a message to all devices of a user.
type delivery struct {
	*handler
	m     Message
	info  queue.Info
	route string // whose sends a pause stops: a tenant's, or "" for all
}

// run sends to every device that is not settled yet, all at once, and returns what is to
// be done with the job, and whether the user's rules get their slot back: the user has
// seen nothing, or had seen the message before.
func (d *delivery) run(ctx context.Context) (o Outcome, refund bool, err error) {
	targets := d.m.Targets
	if len(targets) == 0 {
		targets = []Target{{}} // the sender may have an address of its own
	}
	settled := map[string]bool{}
	if len(targets) > 1 {
		if settled, err = d.ledger.read(ctx, d.info.Queue, d.info.ID); err != nil {
			return o, true, err
		}
	}
	outcomes := make([]Outcome, len(targets))
	var sends sync.WaitGroup
	for i, to := range targets {
		switch {
		case settled[strconv.Itoa(i)]:
			outcomes[i] = Outcome{Action: Done}
		case len(targets) == 1:
			outcomes[i] = d.attempt(ctx, i, to)
		default:
			sends.Go(func() { outcomes[i] = d.attempt(ctx, i, to) })
		}
	}
	sends.Wait()
	o, sawNow := combine(outcomes, settled)
	return o, settled[seen] || !sawNow, nil
}

// attempt sends to one device and draws the consequences for the others.
func (d *delivery) attempt(ctx context.Context, device int, to Target) (o Outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			o = Outcome{Action: Retry, Err: fmt.Errorf("notify: the sender panicked: %v", cause), Reached: true}
		}
		d.metrics.sent(o.Action)
	}()
	o = d.sender.Send(ctx, d.m, to)
	if o.Err == nil {
		o.Err = errNoCause
	}
	switch o.Action {
	case Done:
		o.Err, o.Reached = nil, true
		d.guard.believes(d.route, false)
		d.routes.works(d.route)
	case Forget:
		o = d.forget(ctx, to, o)
	case Drop:
		d.cfg.Logger.WarnContext(ctx, "a message cannot be sent", "id", d.info.ID, "tenant", d.info.Tenant, "err", o.Err)
	case Defer:
		o.After = cmp.Or(o.After, firstWait)
	}
	if o.Action == Halt {
		o.After = cmp.Or(o.After, d.cfg.HaltFor)
		d.cfg.Logger.ErrorContext(ctx, "HALTED: the provider refuses what no retry can mend; nothing is lost, look at the configuration",
			"tenant", d.info.Tenant, "everyone", d.cfg.Shared, "again_in", o.After, "err", o.Err)
	}
	if o.Action == Halt || o.Action == Pause {
		now := clockNow(ctx)
		o.After = d.routes.close(d.route, now, o.After).Sub(now)
	}
	d.note(ctx, device, o)
	return o
}

// forget believes that a target is gone, or not.
func (d *delivery) forget(ctx context.Context, to Target, o Outcome) Outcome {
	if !o.Since.IsZero() && to.Registered.After(o.Since) {
		o.Action = Retry // it has come back to life since
		return o
	}
	if !d.guard.believes(d.route, o.Doubtful) {
		return Outcome{Action: Halt, Err: fmt.Errorf("%w: %w", errDoubtful, o.Err)}
	}
	d.cfg.Logger.InfoContext(ctx, "a target is gone", "id", d.info.ID, "tenant", d.info.Tenant, "user", d.info.User, "err", o.Err)
	if d.cfg.Forget == nil {
		return o
	}
	if err := d.cfg.Forget(ctx, d.info, to, o.Err); err != nil {
		return Outcome{Action: Retry, Err: fmt.Errorf("notify: forgetting a target: %w", err)}
	}
	return o
}

// note writes into the ledger what the next attempt has to know.
func (d *delivery) note(ctx context.Context, device int, o Outcome) {
	if len(d.m.Targets) < 2 {
		return
	}
	var err error
	switch {
	case o.Action == Done || o.Action == Drop || o.Action == Forget:
		err = d.ledger.settle(ctx, d.info.Queue, d.info.ID, device, o.Reached)
	case o.Reached:
		err = d.ledger.mark(ctx, d.info.Queue, d.info.ID)
	}
	if err != nil {
		d.cfg.Logger.WarnContext(ctx, "a retry may repeat a message on a device", "id", d.info.ID, "err", err)
	}
}

// urgency orders actions: what the job does is what the most urgent of its devices asks.
func urgency(a Action) int {
	switch a {
	case Halt:
		return 6
	case Pause:
		return 5
	case Defer:
		return 4
	case Retry:
		return 3
	case Done:
		return 2
	case Drop:
		return 1
	case Forget:
		return 0
	}
	return 7 // what nobody knows is nothing to pass over
}

// combine makes one outcome of those of all devices, and says whether the user saw, or
// may have seen, something of this attempt.
func combine(outcomes []Outcome, settled map[string]bool) (worst Outcome, saw bool) {
	worst = outcomes[0]
	for i, o := range outcomes {
		saw = saw || o.Reached && !settled[strconv.Itoa(i)]
		after := max(o.After, worst.After)
		switch {
		case urgency(o.Action) > urgency(worst.Action):
			worst = o
		case o.Action == worst.Action:
			worst.After = after
		}
	}
	return worst, saw
}
