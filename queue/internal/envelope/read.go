package envelope

import (
	"fmt"
	"time"
)

// Open reads an envelope. With [ErrNewer] it returns the envelope, too: all of it but the option that this version does
// not know. With any other error it returns nil.
func Open(text string) (*Envelope, error) {
	if len(text) <= StampLen {
		return nil, ErrMalformed
	}
	if n, ok := readStamp(text[:StampLen]); !ok || n <= 0 {
		return nil, ErrMalformed
	}
	e := &Envelope{Stamp: text[:StampLen], Cost: 1, MaxAttempts: DefaultAttempts, Priority: Normal}
	r := &reader{rest: text[StampLen:]}
	var newer error
	for {
		before := r.rest
		tag := r.byte()
		if r.err != nil {
			return nil, r.err
		}
		if tag == tagEnd {
			break
		}
		value := r.text()
		if r.err != nil {
			return nil, r.err
		}
		known, err := e.set(tag, value)
		switch {
		case err != nil:
			return nil, err
		case !known:
			e.unknown = append(e.unknown, before[:len(before)-len(r.rest)]...)
			if tag >= Critical {
				newer = fmt.Errorf("%w: option %d", ErrNewer, tag)
			}
		}
	}
	e.Type = r.text()
	e.Payload = r.rest
	if r.err != nil {
		return nil, r.err
	}
	switch {
	case len(e.Members) > 0:
		e.derive()
	case e.digest != "":
		return nil, ErrMalformed
	}
	return e, newer
}

// Head reads what it can of an envelope that may be cut off: records keep the first 2 kB of a job. IDs and other short
// names stand at the beginning, so that they are there. What is missing has the usual values. It reports false where
// not even the stamp is there.
func Head(text string) (*Envelope, bool) {
	if e, _ := Open(text); e != nil {
		return e, true
	}
	if len(text) < StampLen {
		return nil, false
	}
	e := &Envelope{Stamp: text[:StampLen], Cost: 1, MaxAttempts: DefaultAttempts, Priority: Normal}
	r := &reader{rest: text[StampLen:]}
	for {
		tag := r.byte()
		if r.err != nil || tag == tagEnd {
			break
		}
		value := r.text()
		if r.err != nil {
			return e, true
		}
		if _, err := e.set(tag, value); err != nil {
			return e, true
		}
	}
	e.Type = r.text()
	return e, true
}

// set reads one option, and reports whether this version knows it. A value that is out of bounds makes the job
// malformed.
func (e *Envelope) set(tag byte, value string) (known bool, err error) {
	if field := e.text(tag); field != nil {
		*field = value
		return true, nil
	}
	switch tag {
	case tagSlot:
		slot, ok := readStamp(value)
		if e.Slot = slot; !ok || slot <= 0 {
			return true, ErrMalformed
		}
		return true, nil
	case tagMember:
		member, err := Open(value)
		if member != nil && len(member.Members) > 0 {
			err = ErrMalformed
		}
		if err == nil {
			e.Members = append(e.Members, member)
		}
		return true, err
	case tagHeader:
		r := &reader{rest: value}
		name := r.text()
		if e.Headers == nil {
			e.Headers = make(map[string]string)
		}
		e.Headers[name] = r.rest
		return true, r.err
	case tagKey:
		r := &reader{rest: value}
		name := r.text()
		if e.Keys == nil {
			e.Keys = make(map[string]string)
		}
		e.Keys[name] = r.rest
		return true, r.err
	case tagUnit:
		r := &reader{rest: value}
		unit, n := r.text(), r.number()
		if r.err != nil || r.rest != "" || n > maxCount {
			return true, ErrMalformed
		}
		if e.Costs == nil {
			e.Costs = make(map[string]int)
		}
		e.Costs[unit] = int(n)
		return true, nil
	}
	field, most := e.number(tag)
	if field == nil {
		return false, nil
	}
	r := &reader{rest: value}
	n := r.number()
	if r.err != nil || r.rest != "" || n > most {
		return true, ErrMalformed
	}
	field(int64(n))
	return true, nil
}

// text returns the field of an option that is a text; nil for any other.
func (e *Envelope) text(tag byte) *string {
	switch tag {
	case tagCollapse:
		return &e.CollapseKey
	case tagID:
		return &e.ID
	case tagCallback:
		return &e.Callback
	case tagError:
		return &e.Error
	case tagSpilled:
		return &e.Spilled
	case tagLock:
		return &e.Lock
	case tagDigesting:
		return &e.DigestKey
	case tagDigest:
		return &e.digest
	}
	return nil
}

// The bounds of what an envelope may say. They keep every sum of instants and costs far
// from overflowing.
const (
	maxInstant = uint64(1) << 53
	maxCount   = 1_000_000_000
)

// number returns a function that sets the field of an option to a number, and the most that the number may be; nil
// for an option that is not known, or is no number.
func (e *Envelope) number(tag byte) (set func(int64), most uint64) {
	count := func(field *int) (func(int64), uint64) { return func(n int64) { *field = int(n) }, maxCount }
	instant := func(field *int64) (func(int64), uint64) { return func(n int64) { *field = n }, maxInstant }
	switch tag {
	case tagCost:
		return func(n int64) { e.Cost = max(1, int(n)) }, maxCount
	case tagFailures:
		return count(&e.Failures)
	case tagLost:
		return count(&e.Lost)
	case tagLate:
		return instant(&e.Late)
	case tagSentOn:
		return func(n int64) { e.SentOn = n == 1 }, 1
	case tagYields:
		return func(n int64) { e.Yields = n == 1 }, 1
	case tagAttempts:
		return count(&e.MaxAttempts)
	case tagPriority:
		return func(n int64) { e.Priority = int(n) }, Low
	case tagDeadline:
		return instant(&e.Deadline)
	case tagUntil:
		return instant(&e.Until)
	case tagReady:
		return instant(&e.Ready)
	case tagRevived:
		return instant(&e.Revived)
	case tagBegin:
		return instant(&e.NotBefore)
	case tagTimeout:
		return func(n int64) { e.Timeout = time.Duration(n) }, 1<<63 - 1
	}
	return nil, 0
}
