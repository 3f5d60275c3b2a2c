package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
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

	"github.com/waterclock/waterclock/queue/watch"
)

// Config configures a handler. Redis and Token are required.
type Config struct {
	// Redis is where the queues are.
	Redis redis.UniversalClient

	// Token is the token that every request needs, as "Authorization: Bearer …". It has at least
	// [MinToken] bytes, none of them white space.
	Token string

	// Queues are the queues that are served. Empty means all queues, including those that are
	// created later.
	Queues []string

	// Timeout is how long an answer may take. Defaults to 20 seconds.
	Timeout time.Duration

	// Logger gets every change with its author, and errors. nil is slog.Default().
	Logger *slog.Logger
}

// MinToken is the least length of a token in bytes; shorter ones could be guessed.
const MinToken = 16

// ErrInvalidConfig is wrapped by the errors of [New].
var ErrInvalidConfig = errors.New("api: invalid config")

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI returns the description of the API, an OpenAPI document in YAML.
func OpenAPI() []byte { return slices.Clone(openAPI) }

// The bounds of what is answered at a time.
const (
	maxRequests = 64       // at once; further ones are told to come again
	maxBody     = 16 << 20 // bytes
	bodyTime    = 10 * time.Second
)

// A handler answers requests.
type handler struct {
	cfg    Config
	token  [sha256.Size]byte
	mux    *http.ServeMux
	places chan struct{}
}

// New returns a handler of all paths that begin with /v1/, or an error wrapping
// [ErrInvalidConfig].
func New(cfg Config) (http.Handler, error) {
	switch {
	case cfg.Redis == nil:
		return nil, fmt.Errorf("%w: Redis is nil", ErrInvalidConfig)
	case len(cfg.Token) < MinToken || strings.ContainsAny(cfg.Token, " \t\r\n"):
		return nil, fmt.Errorf("%w: the token has %d bytes; want at least %d, without white space", ErrInvalidConfig, len(cfg.Token), MinToken)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("%w: Timeout is %v; want more than 0, or 0 for 20 seconds", ErrInvalidConfig, cfg.Timeout)
	}
	for _, name := range cfg.Queues {
		if _, err := watch.New(cfg.Redis, name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
		}
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 20*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	h := &handler{cfg: cfg, token: sha256.Sum256([]byte(cfg.Token)), mux: http.NewServeMux(), places: make(chan struct{}, maxRequests)}
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

// ServeHTTP lets those in who have the token, as many as there are places. The description of the API is everybody's.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if r.URL.Path == "/v1/openapi.yaml" && r.Method == http.MethodGet { // generators of clients have no token, and it tells of no queue
		header.Set("Content-Type", "application/yaml")
		_, _ = w.Write(openAPI)
		return
	}
	if !h.authorized(r) {
		header.Set("WWW-Authenticate", `Bearer realm="waterclock"`)
		write(w, problemf(http.StatusUnauthorized, "unauthorized", `the token is missing or wrong; want the header "Authorization: Bearer TOKEN"`))
		return
	}
	select {
	case h.places <- struct{}{}:
		defer func() { <-h.places }()
	default:
		header.Set("Retry-After", "1")
		write(w, problemf(http.StatusServiceUnavailable, "busy", "%d requests are being answered; come again in a second", maxRequests))
		return
	}
	h.mux.ServeHTTP(w, r)
}

// authorized compares the token in a time that does not tell how much of it is right.
func (h *handler) authorized(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], h.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// An operation is one thing that can be asked for: how, with what, and what comes back.
type operation struct {
	method, path string
	query        []string     // parameters that it knows
	in, out      reflect.Type // of the bodies; in is nil for none
	changes      bool         // it changes something
	do           func(c *call) (any, error)
}

// look makes an operation that changes nothing.
func look[Out any](path string, query []string, do func(c *call) (Out, error)) operation {
	return operation{
		method: http.MethodGet, path: path, query: query, out: reflect.TypeFor[Out](),
		do: func(c *call) (any, error) { return do(c) },
	}
}

// ask makes an operation that has a body and changes nothing.
func ask[In, Out any](path string, do func(c *call, in In) (Out, error)) operation {
	return operation{
		method: http.MethodPost, path: path, in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](),
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
	op.method, op.changes = method, true
	return op
}

// drop makes an operation that removes what its parameters name.
func drop[Out any](path string, query []string, do func(c *call) (Out, error)) operation {
	op := look(path, query, do)
	op.method, op.changes = http.MethodDelete, true
	return op
}

// about returns the operation with parameters.
func (op operation) about(query ...string) operation {
	op.query = query
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
		// A change is carried out completely, also when the client has hung up.
		ctx := r.Context()
		if op.changes {
			ctx = context.WithoutCancel(ctx)
		}
		ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
		defer cancel()
		answer, err := h.answer(&call{ctx: ctx, w: w, r: r, h: h}, op)
		if err != nil {
			p := problemOf(err)
			if p.Status >= http.StatusInternalServerError {
				h.cfg.Logger.Error("the API failed", "method", r.Method, "path", r.URL.Path, "err", err)
			}
			write(w, p)
			return
		}
		writeJSON(w, http.StatusOK, "application/json", answer)
	}
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
