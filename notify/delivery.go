package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A delivery is one attempt to bring a message to all devices of a user.
type delivery struct {
	*handler
	m       Message
	info    queue.Info
	targets []Target
	settled settled
	visit   visit
}

// run sends to every device that is not settled yet, all at once, and returns what is to
// be done with the job.
func (d *delivery) run(ctx context.Context) (v verdict, err error) {
	d.targets = d.m.Targets
	if len(d.targets) == 0 {
		d.targets = []Target{{}} // the sender may have an address of its own
	}
	if stopped(ctx) {
		return verdict{ending: wait, err: context.Cause(ctx), refund: true}, nil
	}
	now := clockNow(ctx)
	wait, probe := d.breakers.noWayOut(now)
	if wait > 0 && !d.info.SentOn {
		return verdict{ending: retry, err: errNoWayOut, elsewhere: wait, refund: true}, nil
	}
	several := len(d.targets) > 1
	if several {
		if d.settled, err = d.ledger.read(ctx, d.info); err != nil {
			return v, err
		}
	}
	results := d.attempts(ctx)
	wait, began := d.breakers.wentOut(d.info.ID, results, now, clockNow(ctx), probe)
	if began {
		d.cfg.Logger.WarnContext(ctx, "this worker reaches nobody; other workers get its messages", "for", wait, "err", results[0].err)
	}
	if several && d.ledger.keeps(d.info) {
		d.exhaust(results)
	}
	v = sumUp(results, d.settled)
	v.elsewhere = wait
	v.least = patience(d.info.Attempt)
	if several && v.ending == retry {
		v.yields = d.yields(ctx, results)
		v = d.plan(ctx, v, results)
	}
	if several {
		d.close(ctx, v, results)
	}
	return v, nil
}

// yields tells whether the devices that are left can wait for the tenant's other messages:
// the user has this one on another device, and the trouble is not these devices' own.
// Retries would take slots from messages that have nothing to do with it, and at the front
// of its lane the user's next message would wait for them.
func (d *delivery) yields(ctx context.Context, results []result) bool {
	reached, trouble := false, false
	var routes []route
	for _, r := range results {
		switch r.fate {
		case delivered:
			reached = true
		case held:
			trouble = true
		case retried, later:
			trouble = trouble || r.doubt
			routes = append(routes, r.route)
		}
	}
	if !reached || stopped(ctx) {
		return false
	}
	return trouble || slices.ContainsFunc(routes, func(r route) bool { return !d.breakers.alone(ctx, r) })
}

// attempts sends to every device that needs it, and returns what became of each.
func (d *delivery) attempts(ctx context.Context) []result {
	results := make([]result, len(d.targets))
	first := make(map[Target]int) // where a device stands first: it may stand there twice
	var needed []int
	for i, to := range d.targets {
		if _, again := first[to.device()]; again {
			continue
		}
		first[to.device()] = i
		if f := d.settled.devices[i]; f != 0 {
			results[i] = result{fate: f, err: errSettled}
			continue
		}
		needed = append(needed, i)
	}
	var sends sync.WaitGroup
	for _, i := range needed {
		if len(d.targets) == 1 {
			results[i] = d.attempt(ctx, i, d.targets[i])
			break
		}
		sends.Go(func() { results[i] = d.attempt(ctx, i, d.targets[i]) })
	}
	sends.Wait()
	for i, to := range d.targets {
		results[i] = results[first[to.device()]]
	}
	return results
}

// stopped tells whether the worker stops. What is not sent yet is another one's then.
func stopped(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

var errSettled = errors.New("notify: the device refused the message in an earlier attempt")

// close ends the ledger of a job that ends with this attempt.
func (d *delivery) close(ctx context.Context, v verdict, results []result) {
	for i, r := range results {
		if r.fate == delivered || r.fate == unregistered || r.fate == replaced {
			d.settled.devices[i] = delivered
		}
	}
	var err error
	switch {
	case v.ending == done:
		err = d.ledger.end(ctx, d.info)
	case v.ending == dead, v.ending == retry && !v.uncounted && d.info.Attempt >= d.info.MaxAttempts:
		err = d.ledger.bury(ctx, d.info, d.settled)
	}
	if err != nil {
		d.cfg.Logger.WarnContext(ctx, "a job that is revived may repeat a message on a device", "id", d.info.ID, "err", err)
	}
}

// attempt is try, whose panic fails the attempt.
func (d *delivery) attempt(ctx context.Context, device int, to Target) (r result) {
	ctx = withAttempt(ctx, d.attemptOf(device))
	err := contain("an attempt", func() error {
		r = d.try(ctx, device, to)
		return nil
	})
	if err != nil {
		logPanic(ctx, d.cfg.Logger, err, d.info.ID)
		r = result{fate: retried, err: err, saw: true}
	}
	return r
}

// try sends to one device, if its route is open, and draws the consequences.
func (d *delivery) try(ctx context.Context, device int, to Target) result {
	p, err := d.providers.of(to)
	if err != nil {
		d.cfg.Logger.WarnContext(ctx, "a message cannot be sent", "id", d.info.ID, "tenant", d.info.Tenant, "err", err)
		d.metrics.sent(p, Outcome{Action: Drop, Err: err}, 0)
		return result{fate: rejected, err: err}
	}
	if stopped(ctx) {
		return result{fate: held, err: context.Cause(ctx)}
	}
	r := d.routeOf(p, d.info.Tenant, to)
	if res, waits := d.notDue(ctx, device, r); waits {
		return res
	}
	if until := d.backoffs.until(to, clockNow(ctx)); !until.IsZero() {
		return result{fate: held, err: errClosed, wait: until.Sub(clockNow(ctx)), hold: hold{key: byDevice}}
	}
	pass, h := d.breakers.enter(r, d.visit, clockNow(ctx))
	if h != nil {
		err := errClosed
		if h.busy {
			err = errBusy
		}
		return result{fate: held, err: err, hold: *h, wait: h.until.Sub(clockNow(ctx))}
	}
	defer d.breakers.release(pass)
	newest, err := d.newest.begins(ctx, d.info, d.m, to)
	if err != nil {
		d.cfg.Logger.WarnContext(ctx, "a message may replace a newer one on a device", "id", d.info.ID, "err", err)
	}
	if !newest {
		d.cfg.Logger.InfoContext(ctx, "a message is not sent", "id", d.info.ID, "tenant", d.info.Tenant, "err", errReplaced)
		return d.settle(ctx, device, to, result{fate: replaced, err: errReplaced})
	}
	begin := time.Now()
	o := d.send(ctx, p, to)
	d.report(ctx, p, to, o, time.Since(begin))
	return d.settle(ctx, device, to, d.judge(ctx, p, pass, to, o))
}

// settle writes down what later attempts, of this message and of others, need to know.
func (d *delivery) settle(ctx context.Context, device int, to Target, res result) result {
	if res.fate == retried || res.fate == held {
		if err := d.newest.retries(ctx, d.info, d.m, to); err != nil {
			d.cfg.Logger.WarnContext(ctx, "a retry may replace a newer message on a device", "id", d.info.ID, "err", err)
		}
	}
	if len(d.targets) > 1 {
		if err := d.ledger.note(ctx, d.info, device, res); err != nil {
			d.cfg.Logger.WarnContext(ctx, "a retry may repeat a message on a device", "id", d.info.ID, "err", err)
		}
	}
	return res
}

func (d *delivery) send(ctx context.Context, p Provider, to Target) (o Outcome) {
	err := contain("Sender.Send", func() error {
		o = p.Sender.Send(ctx, d.m, to)
		return nil
	})
	switch {
	case err != nil:
		o = Outcome{Action: Retry, Err: err, Reached: true}
	case o.Action == Done:
		o.Err, o.Reached = nil, true
	case o.Err == nil:
		o.Err = errNoCause
	}
	return o
}

// judge takes an outcome into account for its route, and returns what it means for the
// device. What one device is answered decides about this device alone.
func (d *delivery) judge(ctx context.Context, p Provider, pass *pass, to Target, o Outcome) result {
	now := clockNow(ctx)
	if errors.Is(o.Err, errCrowded) { // as if its share of places was taken
		return result{fate: held, err: o.Err, wait: shareWait, hold: hold{busy: true, key: byRoute}}
	}
	r := result{err: o.Err, saw: o.Reached, wait: o.After, route: pass.route}
	e := event{finding: findingOf(o), after: o.After}
	if attemptFrom(ctx) <= 1 {
		e.witness = d.witness(p, to)
	}
	switch o.Action {
	case Done:
		r.fate = delivered
		d.backoffs.clear(to)
	case Forget:
		if r.fate = unregistered; !o.Since.IsZero() && to.Registered.After(o.Since) {
			r.fate = retried // it has come back to life since
			e.finding = answers
		}
	case Drop:
		r.fate = rejected
	case Defer:
		r.fate, r.wait, r.hold = held, d.backoffs.next(to, now, o.After), hold{key: byDevice}
	case Retry:
		r.fate, r.doubt = retried, o.Doubtful
	case Pause:
		r.fate, r.wait = retried, max(r.wait, firstWait)
	case Halt:
		r.fate, r.wait = retried, max(r.wait, time.Minute)
	default:
		r.fate, r.err = retried, fmt.Errorf("notify: unknown action %q: %w", o.Action, o.Err)
	}
	if e.finding == doubts && d.cfg.TrustAnswers {
		e.finding = answers
	}
	e.device, e.ours = fingerprint(to), o.Action == Retry
	e.gone = r.fate == unregistered && e.finding == answers && !d.cfg.TrustAnswers
	if o.unreached() && !p.hasOrigins() {
		e.local, e.witness = true, d.info.ID // no device has a part in that
	}
	n := d.breakers.leave(pass, e, now)
	d.announce(ctx, p, pass.route, o, n, now)
	if n.finding == doubts && o.Action != Retry && !n.believed && !d.confirmed(ctx, pass.route, e.device, n) {
		r.doubt = true
		r.fate, r.wait, r.err = retried, max(r.wait, doubtWait), fmt.Errorf("%w: %w", errDoubtful, r.err)
	}
	r = d.apply(ctx, r, e, n, to, now)
	r.reached, r.unreached = o.answered(), o.unreached()
	return r
}

// confirmed waits a little for another message to get through, which proves that the
// configuration is right and the device is bad. It keeps its place meanwhile, so it waits only
// where messages get through.
func (d *delivery) confirmed(ctx context.Context, r route, device string, n news) bool {
	if !n.until.IsZero() || n.next == nil {
		return false // the route is suspended: none will
	}
	timer := time.NewTimer(doubtPatience)
	defer timer.Stop()
	select {
	case <-n.next:
	case <-timer.C:
	case <-ctx.Done():
	}
	return d.breakers.believes(r, device)
}

// apply is what the state of its route makes of a device's result.
func (d *delivery) apply(ctx context.Context, r result, e event, n news, to Target, now time.Time) result {
	if r.fate == unregistered {
		if err := d.tell(ctx, to, r.err); err != nil {
			return result{fate: retried, err: err}
		}
	}
	if e.local && !n.until.IsZero() { // no attempt was made, and none counts
		return result{fate: held, err: r.err, wait: n.until.Sub(now), hold: hold{until: n.until, suspended: true, local: true}}
	}
	if r.fate == retried && !n.until.IsZero() {
		r.wait = max(r.wait, n.until.Sub(now))
	}
	return r
}

// findingOf says what an outcome proves about its route.
func findingOf(o Outcome) finding {
	var provider *ProviderError
	var panicked *panicError
	if errors.As(o.Err, &panicked) {
		return nothing
	}
	answered := errors.As(o.Err, &provider)
	switch o.Action {
	case Done:
		return works
	case Retry, Pause, Halt:
		if !o.Doubtful {
			return fails
		}
		return doubts
	case Drop, Forget:
		if o.Doubtful {
			return doubts
		}
	}
	if answered && !errors.Is(o.Err, errToken) || o.Action == Forget {
		return answers
	}
	return nothing // it never came to a request
}

// witness names the device or endpoint for which an attempt's failure counts. A webhook's
// endpoint is a route of its own, and its messages are the witnesses.
func (d *delivery) witness(p Provider, to Target) string {
	if p.Name == "webhook" || to.Token == "" {
		return d.info.ID
	}
	return fingerprint(to)
}

// tell tells the app of a target that is gone.
func (d *delivery) tell(ctx context.Context, gone Target, why error) error {
	d.cfg.Logger.InfoContext(ctx, "a target is gone", "id", d.info.ID, "tenant", d.info.Tenant, "user", d.info.User, "err", why)
	if d.cfg.Forget == nil {
		return nil
	}
	err := contain("HandlerConfig.Forget", func() error { return d.cfg.Forget(ctx, d.info, gone, why) })
	if err != nil {
		logPanic(ctx, d.cfg.Logger, err, d.info.ID)
		return fmt.Errorf("notify: forgetting a target: %w", err)
	}
	return nil
}
