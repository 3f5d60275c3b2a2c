package main

import (
	"net/http"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue/api"
)

// api returns the HTTP API of the queues, or of all that there are if none is named; nil, and says so, without a
// token.
func (c *console) api(rdb *config.Redis, queues []string, tokenFile string) (http.Handler, error) {
	token, err := config.Token(tokenFile)
	if err != nil {
		return nil, err
	}
	if token == "" {
		c.say("the HTTP API is not served: it needs --token-file FILE, or WATERCLOCK_TOKEN")
		return nil, nil
	}
	handler, err := api.New(api.Config{Redis: rdb, Token: token, Queues: queues, Logger: c.log})
	if err != nil {
		return nil, config.Usagef("%v", err)
	}
	return handler, nil
}
