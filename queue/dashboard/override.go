package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/human"
	named "github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// askOverride asks before the rules of a limit are replaced that counts everything.
func askOverride(_ context.Context, o order) (string, error) {
	if o.limit() == "" || o.key() != "" {
		return "", nil
	}
	return "Replace the rules of the limit " + human.Clean(o.limit()) + " for a time? It counts all jobs that it is about.", nil
}

// doOverride lets other rules count for a key of a limit by name, for a time.
func doOverride(ctx context.Context, o order) (string, error) {
	if o.limit() == "" {
		return "", refusal{http.StatusBadRequest, "Of which limit?"}
	}
	length, err := time.ParseDuration(o.fields.Get("for"))
	if err != nil || length < minPause || length > maxPause {
		return "", refusal{http.StatusBadRequest, "For how long? Want a time from 1s to 720h, such as 2h."}
	}
	set := queue.Override{Limit: o.limit(), Key: named.SplitKey(o.key()), For: length}
	for text := range strings.SplitSeq(o.fields.Get("rules"), ",") {
		rule, err := throttle.ParseRule(strings.TrimSpace(text))
		if err != nil {
			return "", refusal{http.StatusBadRequest, err.Error()}
		}
		set.Rules = append(set.Rules, rule)
	}
	err = o.queue.Override(ctx, set)
	if errors.Is(err, queue.ErrInvalidPolicies) {
		err = refusal{http.StatusBadRequest, err.Error()}
	}
	return fmt.Sprintf("The %s has other rules for %s.", o.scope(), human.Span(length)), err
}

// doRestore ends an override before its time.
func doRestore(ctx context.Context, o order) (string, error) {
	was, err := o.queue.EndOverride(ctx, o.limit(), named.SplitKey(o.key())...)
	if err == nil && !was {
		err = refusal{http.StatusConflict, "No override counts for the " + o.scope() + " any more."}
	}
	return fmt.Sprintf("The %s has the rules of the policies again.", o.scope()), err
}
