package queue

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"maps"
)

// An envelope is a job as it travels: what the scripts read and change (read_job in
// envelopes.lua), then a body that only Go reads.
type envelope struct {
	job      Job
	offered  time.Time
	failures int
}

// seal returns the envelope of a job without the instant of its offer, which is Redis's
// to say: options of the job that are not the usual ones, and its body.
func seal(j Job) []byte {
	var options []string
	add := func(letter string, value string) { options = append(options, letter+value) }
	if j.Cost > 1 {
		add("c", strconv.Itoa(j.Cost))
	}
	if !j.Deadline.IsZero() {
		add("d", strconv.FormatInt(max(1, j.Deadline.UnixMicro()), 10))
	}
	if retries := max(0, j.MaxRetry); j.MaxRetry != 0 && retries != DefaultMaxRetry {
		add("r", strconv.Itoa(retries))
	}
	if j.Priority != Normal {
		add("p", strconv.Itoa(rank(j.Priority)))
	}
	if j.CollapseKey != "" {
		add("k", escape(j.CollapseKey))
	}
	if j.ID != "" {
		add("!", escape(j.ID))
	}
	head := "-"
	if len(options) > 0 {
		head = "+" + strings.Join(options, ":") + " "
	}
	return appendBody([]byte(head), j)
}

// rank is a priority as the scripts order it: 0 is served first.
func rank(p Priority) int {
	return map[Priority]int{High: 0, Normal: 1, Low: 2}[p]
}

func priorityOf(rank string) Priority {
	return map[string]Priority{"0": High, "1": Normal, "2": Low}[rank]
}

// appendBody writes what no script needs to know: type, timeout, headers, payload, each
// with its length before it.
func appendBody(b []byte, j Job) []byte {
	b = appendString(slices.Grow(b, len(j.Type)+len(j.Payload)+8), j.Type)
	b = binary.AppendUvarint(b, uint64(j.Timeout))
	b = binary.AppendUvarint(b, uint64(len(j.Headers)))
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		b = appendString(b, name)
		b = appendString(b, j.Headers[name])
	}
	return append(b, j.Payload...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errEnvelope = errors.New("queue: malformed envelope")

// decodeBody reads what appendBody wrote into the job.
func decodeBody(body string, j *Job) error {
	r := &reader{rest: body}
	j.Type = r.text()
	j.Timeout = time.Duration(r.number())
	if n := r.number(); n > 0 && n <= uint64(len(r.rest)) {
		j.Headers = make(map[string]string, n)
		for range n {
			name := r.text()
			j.Headers[name] = r.text()
		}
	}
	j.Payload = []byte(r.rest)
	return r.err
}

// reader takes values from the front of a body; after an error it returns zeros.
type reader struct {
	rest string
	err  error
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	if size <= 0 {
		r.rest, r.err = "", errEnvelope
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.rest, r.err = "", errEnvelope
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// openEnvelope reads an envelope of a user's lane, named as in "tenant:user".
func openEnvelope(lane, text string) (envelope, error) {
	const stamp = 13 // hexadecimal digits
	if len(text) <= stamp {
		return envelope{}, errEnvelope
	}
	offered, err := strconv.ParseInt(text[:stamp], 16, 64)
	if err != nil {
		return envelope{}, errEnvelope
	}
	tenant, user, _ := strings.Cut(lane, ":")
	e := envelope{
		job: Job{
			Tenant: unescape(tenant), User: unescape(user), ID: text[:stamp],
			Cost: 1, MaxRetry: DefaultMaxRetry, Priority: Normal,
		},
		offered: time.UnixMicro(offered),
	}
	head, body := text[stamp], text[stamp+1:]
	if head != '-' {
		options, rest, ok := strings.Cut(body, " ")
		if head != '+' || !ok {
			return envelope{}, errEnvelope
		}
		for option := range strings.SplitSeq(options, ":") {
			if err := e.set(option); err != nil {
				return envelope{}, err
			}
		}
		body = rest
	}
	return e, decodeBody(body, &e.job)
}

// set reads one option of the head: a letter and its value.
func (e *envelope) set(option string) error {
	if len(option) < 2 {
		return errEnvelope
	}
	letter, value := option[0], option[1:]
	switch letter {
	case '!', 'i':
		e.job.ID = unescape(value)
		return nil
	case 'k':
		e.job.CollapseKey = unescape(value)
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil || n < 0:
		return errEnvelope
	case letter == 'c' && n > 0:
		e.job.Cost = int(n)
	case letter == 'd' && n > 0:
		e.job.Deadline = time.UnixMicro(n)
	case letter == 'f':
		e.failures = int(n)
	case letter == 'n': // since when it may start: for the scripts
	case letter == 'r':
		if e.job.MaxRetry = int(n); n == 0 {
			e.job.MaxRetry = -1
		}
	case letter == 'p':
		e.job.Priority = priorityOf(value)
	default:
		return errEnvelope
	}
	return nil
}
