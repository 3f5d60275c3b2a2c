package walk

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/waterclock/waterclock/internal/redistest"
)

// Required is the environment variable that turns a missing browser into a failed test.
const required = "WATERCLOCK_REQUIRE_CHROMIUM"

// screenshots is the environment variable that names where pictures of the pages go.
const screenshots = "WATERCLOCK_SCREENSHOTS"

// A browser is a headless Chromium, and what its console has complained of.
type browser struct {
	*testing.T
	ctx  context.Context
	base string

	mu         sync.Mutex
	complaints []string
}

// start starts a browser at a dashboard, or skips the test.
func start(t *testing.T, base string) *browser {
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv(required) != "" {
			t.Fatalf("no chromium in PATH, and %s is set", required)
		}
		t.Skip("no chromium in PATH: the dashboard is not walked through")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("lang", "en"))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, leave := chromedp.NewContext(allocator)
	t.Cleanup(leave)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	b := &browser{T: t, ctx: ctx, base: base}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.complain(e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && !strings.Contains(e.Entry.Text, "Failed to load resource") {
				b.complain(e.Entry.Text)
			}
		}
	})
	b.do(log.Enable(), runtime.Enable())
	return b
}

func (b *browser) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, text)
}

func (b *browser) do(actions ...chromedp.Action) {
	b.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Text("body", &text, chromedp.ByQuery))
		b.Fatalf("%v; the page says:\n%s", err, text)
	}
}

func (b *browser) visit(path string) {
	b.Helper()
	b.do(chromedp.Navigate(b.base+path), chromedp.WaitReady("main", chromedp.ByQuery))
}

// click clicks on what has a text; what comes then has to be waited for, with sees.
func (b *browser) click(tag, text string) {
	b.Helper()
	b.do(chromedp.Click("//"+tag+"[contains(normalize-space(.), '"+text+"')]", chromedp.BySearch))
}

// sees waits until the page holds some texts. A page may be on its way: then it is asked again.
func (b *browser) sees(want ...string) {
	b.Helper()
	for _, text := range want {
		redistest.Eventually(b.T, 20*time.Second, "the page says "+text, func() bool {
			found := false
			err := chromedp.Run(b.ctx, chromedp.Evaluate("document.body.innerText.includes("+quoted(text)+")", &found))
			return err == nil && found
		})
	}
}

// reaches waits until a page of the queue is there.
func (b *browser) reaches(name string) {
	b.Helper()
	redistest.Eventually(b.T, 20*time.Second, "the page is "+name, func() bool {
		there := false
		is := "location.pathname.endsWith(" + quoted("/"+name) + ") && document.readyState === 'complete'"
		err := chromedp.Run(b.ctx, chromedp.Evaluate(is, &there))
		return err == nil && there
	})
}

func quoted(text string) string { return "\"" + strings.ReplaceAll(text, "\"", "\\\"") + "\"" }

// look sets how wide the window is, and whether it is dark.
func (b *browser) look(width int64, dark bool) {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.do(chromedp.EmulateViewport(width, 900),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
}

// holds fails unless something is true of the page.
func (b *browser) holds(what string) {
	b.Helper()
	var is bool
	if b.do(chromedp.Evaluate(what, &is)); !is {
		b.Errorf("it does not hold that %s", what)
	}
}

// accessible fails for a page that somebody who does not see it could not use: fields without
// labels, pictures without texts, columns without titles, and more or less than one title.
func (b *browser) accessible() {
	b.Helper()
	b.holds(`[...document.querySelectorAll("input:not([type=hidden]), select, textarea:not([hidden])")].every(e => e.labels?.length || e.ariaLabel)`)
	b.holds(`[...document.querySelectorAll("svg")].every(e => e.getAttribute("aria-hidden") || e.ariaLabel)`)
	b.holds(`[...document.querySelectorAll("th")].every(e => e.scope)`)
	b.holds(`document.querySelectorAll("h1").length === 1 && document.title.includes("waterclock") && document.documentElement.lang === "en"`)
	b.holds(`["header", "nav[aria-label]", "main"].every(tag => document.querySelectorAll(tag).length === 1)`)
}

// fits fails if the page is wider than the window.
func (b *browser) fits() {
	b.Helper()
	var wide bool
	b.do(chromedp.Evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth", &wide))
	if wide {
		b.Error("the page is wider than the window")
	}
}

// picture keeps a picture of the page, if somebody wants to look at it.
func (b *browser) picture(name string) {
	b.Helper()
	dir := os.Getenv(screenshots)
	if dir == "" {
		return
	}
	var data []byte
	b.do(chromedp.FullScreenshot(&data, 100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), data, 0o600); err != nil {
		b.Error(err)
	}
}
