package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/queue"
)

// forgotten is the file in which the app finds the targets that are gone. It holds their
// tokens, so nobody else may read it.
type forgotten struct {
	mu   sync.Mutex
	file *os.File
}

func openForgotten(name string) (*forgotten, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--forgotten-file: %w", err)
	}
	return &forgotten{file: file}, nil
}

func (f *forgotten) close() error {
	if f == nil {
		return nil
	}
	return f.file.Close()
}

// A goneLine is one line of the file.
type goneLine struct {
	At     time.Time `json:"at"`
	Tenant string    `json:"tenant"`
	User   string    `json:"user"`
	Token  string    `json:"token"`
	Why    string    `json:"why"`
}

func (f *forgotten) forget(_ context.Context, job queue.Info, gone notify.Target, why error) error {
	var code *notify.ProviderError
	text := ""
	if errors.As(why, &code) {
		text = cmp.Or(code.Code, fmt.Sprint(code.Status))
	}
	line, err := json.Marshal(goneLine{job.Started.UTC(), job.Tenant, job.User, gone.Token, text})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err = f.file.Write(append(line, '\n'))
	return err
}
