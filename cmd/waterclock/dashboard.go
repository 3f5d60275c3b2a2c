package main

import (
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue/dashboard"
)

// dashboard returns the dashboard of queues; nil if there are none. Who has the token may act.
func (c *console) dashboard(rdb *config.Redis, queues []string, tokenFile string) (*dashboard.Dashboard, error) {
	token, err := config.Token(tokenFile)
	if err != nil || len(queues) == 0 {
		return nil, err
	}
	board, err := dashboard.New(dashboard.Config{Redis: rdb, Queues: queues, Token: token, Logger: c.log})
	if err != nil {
		return nil, config.Usagef("%v", err)
	}
	return board, nil
}
