package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/queue"
)

// forgotten is the file in which the app finds the targets that are gone.
type forgotten struct{ w io.Writer }

// A goneLine is one line of the file.
type goneLine struct {
	At       time.Time `json:"at"`
	Tenant   string    `json:"tenant"`
	User     string    `json:"user"`
	Provider string    `json:"provider,omitempty"`
	App      string    `json:"app,omitempty"`
	Token    string    `json:"token"`
	Why      string    `json:"why"`
}

func (f forgotten) forget(_ context.Context, job queue.Info, gone notify.Target, why error) error {
	text := goneLine{At: job.Started.UTC(), Tenant: job.Tenant, User: job.User, Provider: gone.Provider, App: gone.App, Token: gone.Token}
	var answer *notify.ProviderError
	if errors.As(why, &answer) {
		text.Provider, text.Why = cmp.Or(text.Provider, answer.Provider), cmp.Or(answer.Code, fmt.Sprint(answer.Status))
	}
	line, err := json.Marshal(text)
	if err != nil {
		return err
	}
	_, err = f.w.Write(append(line, '\n'))
	return err
}
