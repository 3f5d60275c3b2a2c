package notify

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/waterclock/waterclock/queue"
)

// A digest ([queue.Job].DigestKey) is one notification: the newest of its messages, with the number of them in its data, as
// "digest_count", and on the app's icon, if the message says no badge.

// A DigestText is what a digest of several messages says instead of its newest: text templates (text/template). Each gets a
// [DigestOf]. An empty one leaves what the newest message says.
type DigestText struct{ Title, Body string }

// DigestOf is what the templates of a [DigestText] are given.
type DigestOf struct {
	Count    int
	Newest   Message
	Messages []Message // in the order of their offers; those that can be read
}

// digestCount is the field of a message's data that says how many messages a digest is made of.
const digestCount = "digest_count"

// texts are the templates of a type of jobs.
type texts struct{ title, body *template.Template }

// parseTexts reads the templates of all types, and tries them.
func parseTexts(from map[string]DigestText) (map[string]texts, error) {
	all := make(map[string]texts, len(from))
	sample := DigestOf{Count: 2, Newest: Message{Title: "title", Body: "body"}, Messages: make([]Message, 2)}
	for _, kind := range slices.Sorted(maps.Keys(from)) {
		var of texts
		for _, part := range []struct {
			name, text string
			to         **template.Template
		}{{"title", from[kind].Title, &of.title}, {"body", from[kind].Body, &of.body}} {
			if part.text == "" {
				continue
			}
			t, err := template.New(part.name).Option("missingkey=zero").Parse(part.text)
			if err == nil {
				_, err = written(t, sample)
			}
			if err != nil {
				return nil, fmt.Errorf("notify: Digests[%q]: %w", kind, err)
			}
			*part.to = t
		}
		all[kind] = of
	}
	return all, nil
}

func written(t *template.Template, of DigestOf) (string, error) {
	var text strings.Builder
	err := t.Execute(&text, of)
	return text.String(), err
}

// digest makes the newest message of a digest the notification of all. A template that fails leaves the newest as it is.
func (h *handler) digest(m Message, info queue.Info) Message {
	n := len(info.Digest)
	if n < 2 {
		return m
	}
	if m.Data = maps.Clone(m.Data); m.Data == nil {
		m.Data = make(map[string]string)
	}
	m.Data[digestCount] = strconv.Itoa(n)
	of := DigestOf{Count: n, Newest: m}
	if m.Badge == nil {
		m.Badge = &n
	}
	for _, member := range info.Digest {
		if one, err := ParseMessage(member.Payload); err == nil {
			of.Messages = append(of.Messages, one)
		}
	}
	text := h.texts[info.Type]
	for _, part := range []struct {
		with *template.Template
		to   *string
	}{{text.title, &m.Title}, {text.body, &m.Body}} {
		if part.with == nil {
			continue
		}
		if says, err := written(part.with, of); err != nil {
			h.cfg.Logger.Error("the template of a digest", "type", info.Type, "err", err)
		} else {
			*part.to = says
		}
	}
	return m
}
