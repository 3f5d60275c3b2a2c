package notify

import (
	"fmt"
	"io"
	"log/slog"
)

// hidden is embedded in what holds keys, tokens or endpoints: neither package fmt nor package slog
// shows anything of it. It hides the configurations by way of [Wire].
type hidden struct{}

const hiddenText = "[hidden]"

// Format implements [fmt.Formatter], for all verbs.
func (hidden) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, hiddenText) }

// LogValue implements [slog.LogValuer].
func (hidden) LogValue() slog.Value { return slog.StringValue(hiddenText) }
