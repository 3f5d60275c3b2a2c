package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"maps"
)

// An envelope is a job as it travels: a header of words that the scripts read and
// change (read_job in lanes.lua), then a body that only Go reads.
type envelope struct {
	job      Job
	offered  time.Time
	failures int
}

// headerWords are the words of the header that Go decides and scripts pass on.
func headerWords(j Job) string {
	fold := "-"
	if j.CollapseKey != "" {
		// The mark keeps a key that is itself "-" apart from none.
		fold = "k" + escape(j.CollapseKey)
	}
	retries := j.MaxRetry
	if retries == 0 {
		retries = DefaultMaxRetry
	}
	return fmt.Sprintf("%d %d %s", max(0, retries), rank(j.Priority), fold)
}

// rank is a priority as the scripts order it: 0 is served first.
func rank(p Priority) int {
	return map[Priority]int{High: 0, Normal: 1, Low: 2}[p]
}

func priorityOf(rank string) Priority {
	return map[string]Priority{"0": High, "1": Normal, "2": Low}[rank]
}

// encodeBody writes what no script needs to know: type, timeout, headers, payload, each
// with its length before it.
func encodeBody(j Job) []byte {
	b := make([]byte, 0, len(j.Type)+len(j.Payload)+8)
	b = appendString(b, j.Type)
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

// decodeBody reads what encodeBody wrote into the job.
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
	tenant, user, _ := strings.Cut(lane, ":")
	words := strings.SplitN(text, " ", 9)
	if len(words) != 9 || words[6] == "" {
		return envelope{}, errEnvelope
	}
	var numbers [5]int64
	for i := range numbers {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return envelope{}, errEnvelope
		}
		numbers[i] = n
	}
	e := envelope{
		job: Job{
			Tenant: unescape(tenant), User: unescape(user), ID: unescape(words[6][1:]),
			Cost: int(numbers[0]), MaxRetry: int(numbers[4]), Priority: priorityOf(words[5]),
		},
		offered:  time.UnixMicro(numbers[2]),
		failures: int(numbers[3]),
	}
	if numbers[1] > 0 {
		e.job.Deadline = time.UnixMicro(numbers[1])
	}
	if e.job.MaxRetry == 0 {
		e.job.MaxRetry = -1
	}
	if words[7] != "-" {
		e.job.CollapseKey = unescape(words[7][1:])
	}
	return e, decodeBody(words[8], &e.job)
}
