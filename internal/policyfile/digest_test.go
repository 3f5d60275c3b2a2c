package policyfile

import (
	"strings"
	"testing"
	"time"
)

// What a policy says of digests is read, and written so that it is read again.
func TestDigests(t *testing.T) {
	for text, want := range map[string]Digest{
		"{max: 20, wait: 30s, idle: 5s}":                     {Max: 20, Wait: 30 * time.Second, Idle: 5 * time.Second},
		`{at: "08:00", days: mon-fri, zone: Europe/Paris}`:   {At: "08:00", Days: "mon-fri", Zone: "Europe/Paris"},
		`{at: "17:30", days: "sat,sun", zone: user, max: 5}`: {Max: 5, At: "17:30", Days: "sat,sun", Zone: "user"},
	} {
		f, err := Parse("p.yaml", []byte("policies:\n  standard:\n    digest: "+text+"\n"))
		if err != nil || f.Policies["standard"].Digest != want {
			t.Errorf("%s: %+v, %v", text, f.Policies["standard"].Digest, err)
			continue
		}
		written, err := f.Source()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("p.yaml", []byte(written))
		if err != nil || again.Policies["standard"].Digest != want {
			t.Errorf("%s is written as %s: %v", text, written, err)
		}
	}
}

func TestBadDigests(t *testing.T) {
	for text, want := range map[string]string{
		"{max: 0}":                         `policies.standard.digest.max: "0"; want 1 to 1000 members`,
		"{max: 1001}":                      `policies.standard.digest.max: "1001"; want 1 to 1000 members`,
		"{wait: 30}":                       `policies.standard.digest.wait: "30"; want a time such as 30s, from 1ms to 366 days`,
		"{every: day}":                     `policies.standard.digest.every: unknown key; want max, wait, idle, at, days or zone`,
		`{at: "8"}`:                        `policies.standard.digest.at: time "8": want one such as 08:00`,
		`{at: "08:00", days: monday}`:      `policies.standard.digest.at: days "monday": want days such as mon-fri, or sat,sun, of mon, tue, wed, thu, fri, sat and sun`,
		`{at: "08:00", wait: 5s}`:          `policies.standard.digest.at: want either at, or wait and idle`,
		`{days: mon}`:                      `policies.standard.digest.days: is for digests that start at a time; want at, such as 08:00, too`,
		`{at: "08:00", zone: Europe/Pari}`: `policies.standard.digest.zone: `,
	} {
		_, err := Parse("p.yaml", []byte("policies:\n  standard:\n    digest: "+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "p.yaml:3: ") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
