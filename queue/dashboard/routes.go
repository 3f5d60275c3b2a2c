package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"path"
)

// routes returns what answers each path.
func (d *Dashboard) routes() http.Handler {
	mux, p := http.NewServeMux(), d.cfg.Prefix
	mux.HandleFunc("GET "+p+"{$}", d.looking(d.start))
	mux.HandleFunc("GET "+p+"-/asset/{name}", d.asset)
	mux.HandleFunc("GET "+p+"-/login", d.loginPage)
	mux.HandleFunc("POST "+p+"-/login", d.login)
	mux.HandleFunc("POST "+p+"-/logout", d.logout)
	mux.HandleFunc("GET "+p+"{queue}/-/events", d.looking(d.events))
	for name, read := range pagesOf {
		mux.HandleFunc("GET "+p+"{queue}/"+name, d.looking(d.show(name, read)))
	}
	mux.HandleFunc("GET "+p+"{queue}/{$}", d.looking(d.show("queue", readQueue)))
	for name, act := range actions {
		mux.Handle("POST "+p+"{queue}/do/"+name, d.act(name, act))
	}
	mux.HandleFunc("POST "+p+"{queue}/preview", d.preview)
	mux.HandleFunc(p, func(w http.ResponseWriter, r *http.Request) { d.fail(w, r, notFound("There is no such page.")) })
	return mux
}

// start is the page of the only queue, or the list of all.
func (d *Dashboard) start(w http.ResponseWriter, r *http.Request) {
	if len(d.cfg.Queues) == 1 {
		http.Redirect(w, r, d.base(d.cfg.Queues[0]), http.StatusSeeOther)
		return
	}
	d.listQueues(w, r)
}

// base is the path of a queue's pages.
func (d *Dashboard) base(queue string) string { return d.cfg.Prefix + url.PathEscape(queue) + "/" }

// An asset is a file that pages load, under a name that changes with it.
type asset struct {
	name string
	data []byte
	kind string
}

// readAssets returns the assets under the names of their files.
func readAssets() (map[string]asset, error) {
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	all := make(map[string]asset)
	entries, err := files.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		data, err := files.ReadFile("assets/" + entry.Name())
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		name := fmt.Sprintf("%s-%s", hex.EncodeToString(sum[:6]), entry.Name())
		all[entry.Name()] = asset{name, data, kinds[path.Ext(name)]}
	}
	return all, nil
}

func (d *Dashboard) asset(w http.ResponseWriter, r *http.Request) {
	for _, a := range d.assets {
		if a.name == r.PathValue("name") {
			w.Header().Set("Content-Type", a.kind)
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
			_, _ = w.Write(a.data)
			return
		}
	}
	http.NotFound(w, r)
}
