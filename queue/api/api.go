package api

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/access"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle/limits"
)

// Config configures a handler. Redis, and one of Token and Tokens, are required.
type Config struct {
	// Redis is where the queues are.
	Redis redis.UniversalClient

	// Token is a token that allows everything, as "Authorization: Bearer …". It has at least
	// [access.MinLength] bytes, none of them white space.
	Token string

	// Tokens are tokens each of which allows what its scopes say, in the place of Token. Who makes them runs them.
	Tokens *access.Tokens

	// Queues are the queues that are served. Empty means all queues, including those that are
	// created later.
	Queues []string

	// Durability is where jobs have to be before a request that offers them is answered. Where they are not in time, the answer
	// is 503.
	Durability queue.Durability

	// Limits returns the limits of /v1/decide, for each request anew: [limits.File.Set]. nil: there are none.
	Limits func() *limits.Set

	// Timeout is how long an answer may take. Defaults to 20 seconds.
	Timeout time.Duration

	// Logger gets every change with its author, and errors. nil is slog.Default().
	Logger *slog.Logger
}

// ErrInvalidConfig is wrapped by the errors of [New].
var ErrInvalidConfig = errors.New("api: invalid config")

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI returns the description of the API, an OpenAPI document in YAML.
func OpenAPI() []byte { return slices.Clone(openAPI) }

// A weight is how many operations of a kind are carried out at once, further ones are told to come again; and how many bytes the body
// of one has at most.
type weight struct {
	places int
	body   int64
}

var (
	heavy   = weight{64, 16 << 20}    // most operations
	light   = weight{1024, 256 << 10} // decisions, which take one round trip
	patient = weight{4096, 64 << 10}  // those that wait for a slot
)

// bodyTime is how long the body of a request may take.
const bodyTime = 10 * time.Second

// What a request makes of its body takes up to a dozen times the memory. So all bodies that are being answered share some room. A
// small one needs none, and others wait for it for a moment.
const (
	bodyRoom = 64 << 20
	smallest = 64 << 10
	roomWait = 2 * time.Second
)

// A handler answers requests.
type handler struct {
	cfg     Config
	tokens  *access.Tokens
	mux     *http.ServeMux
	places  map[weight]chan struct{}
	room    *semaphore.Weighted // for bodies, in bytes
	clients *clients
}

// New returns a handler of all paths that begin with /v1/, or an error wrapping
// [ErrInvalidConfig].
func New(cfg Config) (http.Handler, error) {
	switch {
	case cfg.Redis == nil:
		return nil, fmt.Errorf("%w: Redis is nil", ErrInvalidConfig)
	case (cfg.Token == "") == (cfg.Tokens == nil):
		return nil, fmt.Errorf("%w: want one of Token and Tokens", ErrInvalidConfig)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("%w: Timeout is %v; want more than 0, or 0 for 20 seconds", ErrInvalidConfig, cfg.Timeout)
	}
	if cfg.Durability.Replicas < 0 {
		return nil, fmt.Errorf("%w: Durability.Replicas is %d; want 0 or more", ErrInvalidConfig, cfg.Durability.Replicas)
	}
	for _, name := range cfg.Queues {
		if _, err := watch.New(cfg.Redis, name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
		}
	}
	if cfg.Tokens == nil {
		var err error
		if cfg.Tokens, err = access.Open(access.Config{Token: cfg.Token}); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
		}
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 20*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	h := &handler{cfg: cfg, tokens: cfg.Tokens, mux: http.NewServeMux(), places: make(map[weight]chan struct{}), room: semaphore.NewWeighted(bodyRoom),
		clients: newClients(cfg.Redis, queue.ClientConfig{Durability: cfg.Durability})}
	for _, kind := range []weight{heavy, light, patient} {
		h.places[kind] = make(chan struct{}, kind.places)
	}
	for path, operations := range byPath() {
		h.mux.Handle(path, h.path(operations))
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		write(w, problemf(http.StatusNotFound, "no-such-path", "there is nothing at %s; want a path of /v1/openapi.yaml", r.URL.Path))
	})
	return h, nil
}

// byPath returns all operations, those of a path by their methods.
func byPath() map[string]map[string]operation {
	all := make(map[string]map[string]operation)
	for _, op := range operations() {
		if all[op.path] == nil {
			all[op.path] = make(map[string]operation)
		}
		all[op.path][op.method] = op
	}
	return all
}

// ServeHTTP lets those in who have a token. The description of the API is everybody's.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if r.URL.Path == "/v1/openapi.yaml" && r.Method == http.MethodGet { // generators of clients have no token, and it tells of no queue
		header.Set("Content-Type", "application/yaml")
		_, _ = w.Write(openAPI)
		return
	}
	token, problem := h.bearer(r)
	if problem != nil {
		header.Set("WWW-Authenticate", `Bearer realm="waterclock"`)
		write(w, problem)
		return
	}
	h.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), bearerKey{}, token)))
}

// An operation is one thing that can be asked for: how, with what, and what comes back.
type operation struct {
	method, path string
	query        []string       // parameters that it knows
	in, out      reflect.Type   // of the bodies; in is nil for none
	scopes       []access.Scope // of which a token needs one
	changes      bool           // it changes something
	kind         weight
	do           func(c *call) (any, error)
}

// look makes an operation that changes nothing.
func look[Out any](path string, query []string, do func(c *call) (Out, error)) operation {
	return operation{
		method: http.MethodGet, path: path, query: query, out: reflect.TypeFor[Out](), scopes: []access.Scope{access.Read}, kind: heavy,
		do: func(c *call) (any, error) { return do(c) },
	}
}

// ask makes an operation that has a body and changes nothing.
func ask[In, Out any](path string, do func(c *call, in In) (Out, error)) operation {
	return operation{
		method: http.MethodPost, path: path, in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), scopes: []access.Scope{access.Read}, kind: heavy,
		do: func(c *call) (any, error) {
			var in In
			if err := c.read(&in); err != nil {
				return nil, err
			}
			return do(c, in)
		},
	}
}

// act makes an operation that changes something.
func act[In, Out any](method, path string, do func(c *call, in In) (Out, error)) operation {
	op := ask(path, do)
	op.method, op.changes, op.scopes = method, true, []access.Scope{access.Steer}
	return op
}

// drop makes an operation that removes what its parameters name.
func drop[Out any](path string, query []string, do func(c *call) (Out, error)) operation {
	op := look(path, query, do)
	op.method, op.changes, op.scopes = http.MethodDelete, true, []access.Scope{access.Steer}
	return op
}

// about returns the operation with parameters.
func (op operation) about(query ...string) operation {
	op.query = query
	return op
}

// needing returns the operation for tokens with one of these scopes.
func (op operation) needing(scopes ...access.Scope) operation {
	op.scopes = scopes
	return op
}

// of returns the operation as one of another weight.
func (op operation) of(kind weight) operation {
	op.kind = kind
	return op
}

// path answers the requests for one path.
func (h *handler) path(operations map[string]operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		op, known := operations[r.Method]
		if !known {
			var methods []string
			for method := range operations {
				methods = append(methods, method)
			}
			slices.Sort(methods)
			w.Header().Set("Allow", strings.Join(methods, ", "))
			write(w, problemf(http.StatusMethodNotAllowed, "method", "%s is not for this path; want %s", r.Method, strings.Join(methods, " or ")))
			return
		}
		select {
		case h.places[op.kind] <- struct{}{}:
			defer func() { <-h.places[op.kind] }()
		default:
			w.Header().Set("Retry-After", "1")
			write(w, problemf(http.StatusServiceUnavailable, "busy", "%d requests are being answered; come again in a second", op.kind.places))
			return
		}
		size := bodySize(r, op.kind.body)
		if !h.makeRoom(r.Context(), size) {
			w.Header().Set("Retry-After", "1")
			write(w, problemf(http.StatusServiceUnavailable, "busy", "bodies of %d MiB are being answered; come again in a second, or with smaller ones", bodyRoom>>20))
			return
		}
		defer h.room.Release(size)
		// A change is carried out completely, also when the client has hung up.
		ctx := r.Context()
		if op.changes {
			ctx = context.WithoutCancel(ctx)
		}
		ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
		defer cancel()
		token, _ := r.Context().Value(bearerKey{}).(access.Token)
		answer, err := h.answer(&call{ctx: ctx, w: w, r: r, h: h, token: token, author: token.Author("")}, op)
		if err != nil {
			p := problemOf(err)
			if p.Missing != nil {
				w.Header().Set("WWW-Authenticate", p.Missing.challenge())
			}
			if p.Status >= http.StatusInternalServerError {
				h.cfg.Logger.Error("the API failed", "method", r.Method, "path", r.URL.Path, "err", err)
			}
			write(w, p)
			return
		}
		writeJSON(w, http.StatusOK, "application/json", answer)
	}
}

// bodySize returns how much room the body of a request needs: as much as it says, or may have.
func bodySize(r *http.Request, most int64) int64 {
	switch n := r.ContentLength; {
	case n >= 0 && n <= smallest:
		return 0
	case n < 0 || n > most:
		return most
	default:
		return n
	}
}

// makeRoom waits for room for a body, and reports whether there is.
func (h *handler) makeRoom(ctx context.Context, size int64) bool {
	if size == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	return h.room.Acquire(ctx, size) == nil
}

// answer does what was asked for, after it has looked at what every operation has in common.
func (h *handler) answer(c *call, op operation) (any, error) {
	if err := c.open(op); err != nil {
		return nil, err
	}
	answer, err := op.do(c)
	if c.bad != nil { // a parameter that the operation has looked at
		return nil, c.bad
	}
	if op.changes && err == nil {
		h.cfg.Logger.Info("done over HTTP", "path", c.r.URL.Path, "author", c.author, "from", c.r.RemoteAddr)
	}
	return answer, err
}

// writeJSON writes an answer. Text in it stays text: what a browser could take for markup is
// escaped, and nothing else.
func writeJSON(w http.ResponseWriter, status int, kind string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "an answer could not be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
