package notify

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/queue"
)

// A digest is its newest message, with the number of messages; a type with a text has that one.
func TestADigestIsOneNotification(t *testing.T) {
	texts, err := parseTexts(map[string]DigestText{"reply": {
		Title: "{{.Count}} replies", Body: "{{range $i, $m := .Messages}}{{if $i}}, {{end}}{{$m.Body}}{{end}}",
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := &handler{cfg: HandlerConfig{Logger: slog.New(slog.DiscardHandler)}, texts: texts}
	info := queue.Info{Type: "reply", Digest: []queue.Member{
		{Payload: []byte(`{"title":"new","body":"one"}`)}, {Payload: []byte(`no message`)}, {Payload: []byte(`{"title":"new","body":"three"}`)},
	}}
	newest := Message{Title: "new", Body: "three", Data: map[string]string{"a": "b"}}
	m := h.digest(newest, info)
	if m.Title != "3 replies" || m.Body != "one, three" || m.Data["digest_count"] != "3" || m.Data["a"] != "b" || m.Badge == nil || *m.Badge != 3 {
		t.Errorf("%v", m)
	}
	if len(newest.Data) != 1 {
		t.Error("the message that was given is changed")
	}
	info.Type = "other"
	if m := h.digest(newest, info); m.Title != "new" || m.Data["digest_count"] != "3" {
		t.Errorf("%v", m)
	}
	badge := 7
	newest.Badge = &badge
	if m := h.digest(newest, info); *m.Badge != 7 {
		t.Errorf("badge %d", *m.Badge)
	}
	info.Digest = info.Digest[:1]
	if m := h.digest(newest, info); m.Data["digest_count"] != "" {
		t.Errorf("a digest of one: %v", m)
	}
}

// A template that cannot work is an error at the start.
func TestTextsOfDigestsAreChecked(t *testing.T) {
	for text, want := range map[string]string{"{{.Cuont}}": "Cuont", "{{": "unclosed action"} {
		_, err := NewHandler(nil, HandlerConfig{Digests: map[string]DigestText{"reply": {Body: text}}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `Digests["reply"]`) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
