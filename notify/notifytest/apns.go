package notifytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// APNs is Apple's service: HTTP/2 only, provider tokens in ES256.
type APNs struct {
	Host
	Key                  []byte // the .p8 file
	KeyID, TeamID, Topic string
	Topics               []string // further apps of the team

	public *ecdsa.PublicKey

	mu     sync.Mutex
	token  string    // the newest provider token, once it was verified
	claims claims    // what it says
	since  time.Time // when it was first seen
}

// NewAPNs starts an APNs.
func NewAPNs(o Options) (*APNs, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &APNs{KeyID: "ABC123DEFG", TeamID: "DEF123GHIJ", Topic: "com.example.school", public: &key.PublicKey}
	if a.Key, err = inPEM(key); err != nil {
		return nil, err
	}
	a.verify, a.success = a.check, a.ok
	return a, a.start(o, true)
}

// Gone is the answer for a device that was unregistered at that time.
func Gone(at time.Time) *Answer {
	return &Answer{Status: http.StatusGone, Body: fmt.Sprintf(`{"reason":"Unregistered","timestamp":%d}`, at.UnixMilli())}
}

// Reason is an answer of APNs.
func Reason(status int, reason string) *Answer {
	return &Answer{Status: status, Body: fmt.Sprintf(`{"reason":%q}`, reason)}
}

func (a *APNs) ok(w http.ResponseWriter, got Received) { w.Header().Set("apns-id", got.ID) }

var (
	devicePath = regexp.MustCompile(`^/3/device/([0-9a-fA-F]{8,200})$`)
	uuid       = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

func (a *APNs) check(r *http.Request, body []byte) (got Received, refusal *Answer) {
	refuse := func(status int, reason string) (Received, *Answer) {
		got.Refused = "apns: " + reason
		return got, Reason(status, reason)
	}
	h := r.Header
	path := devicePath.FindStringSubmatch(r.URL.Path)
	switch {
	case r.ProtoMajor != 2:
		return refuse(http.StatusHTTPVersionNotSupported, "NotHTTP2")
	case r.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, "MethodNotAllowed")
	case path == nil && strings.HasPrefix(r.URL.Path, "/3/device/"):
		return refuse(http.StatusBadRequest, "BadDeviceToken")
	case path == nil:
		return refuse(http.StatusNotFound, "BadPath")
	}
	got.Device, got.ID, got.Collapse = path[1], h.Get("apns-id"), h.Get("apns-collapse-id")
	got.Priority, got.PushType, got.Topic = h.Get("apns-priority"), h.Get("apns-push-type"), h.Get("apns-topic")
	if status, reason := a.checkToken(h.Get("authorization")); reason != "" {
		return refuse(status, reason)
	}
	got.trusted = true
	if reason := a.checkHeader(h); reason != "" {
		return refuse(http.StatusBadRequest, reason)
	}
	if strings.Trim(got.Device, "f") == "" {
		return refuse(http.StatusBadRequest, "BadDeviceToken") // no device has that
	}
	if seconds, _ := strconv.ParseInt(h.Get("apns-expiration"), 10, 64); seconds > 0 {
		got.Expires = time.Unix(seconds, 0)
	}
	if len(body) > 4096 {
		return refuse(http.StatusRequestEntityTooLarge, "PayloadTooLarge")
	}
	aps, fields := parsePayload(body)
	switch {
	case aps == nil:
		return refuse(http.StatusBadRequest, "PayloadEmpty")
	case !aps.fits(h.Get("apns-push-type")):
		return refuse(http.StatusBadRequest, "InvalidPushType")
	}
	got.Sound, got.Badge, got.Data = aps.Sound, aps.Badge, map[string]string{}
	if aps.Alert != nil {
		got.Title, got.Body = aps.Alert.Title, aps.Alert.Body
	}
	for name, value := range fields {
		if text, ok := value.(string); ok {
			got.Data[name] = text
		}
	}
	if aps.MutableContent == 1 {
		got.Image = got.Data["image"] // an extension would fetch it
		delete(got.Data, "image")
	}
	return got, nil
}

// An apsField is what Apple's devices read in a payload.
type apsField struct {
	Alert            *struct{ Title, Body string } `json:"alert"`
	Sound            string                        `json:"sound"`
	Badge            *int                          `json:"badge"`
	ContentAvailable int                           `json:"content-available"`
	MutableContent   int                           `json:"mutable-content"`
}

// parsePayload returns nil if there is nothing in a payload for a device to do.
func parsePayload(body []byte) (aps *apsField, fields map[string]any) {
	var payload struct {
		APS *apsField `json:"aps"`
	}
	if json.Unmarshal(body, &payload) != nil || json.Unmarshal(body, &fields) != nil {
		return nil, nil
	}
	return payload.APS, fields
}

// fits tells whether a payload does what its push type says: one for the background
// wakes the app and is neither seen nor heard.
func (a apsField) fits(kind string) bool {
	noticed := a.Alert != nil || a.Sound != "" || a.Badge != nil
	return kind != "background" || a.ContentAvailable == 1 && !noticed
}

// topicSuffixes are Apple's push types, each with what follows the bundle ID in its topic. That of
// mdm is no app's.
var topicSuffixes = map[string]string{
	"alert": "", "background": "", "complication": ".complication", "controls": ".push-type.controls",
	"fileprovider": ".pushkit.fileprovider", "liveactivity": ".push-type.liveactivity", "location": ".location-query",
	"pushtotalk": ".voip-ptt", "voip": ".voip", "widgets": ".push-type.widgets",
}

// checkHeader returns what Apple would call what is wrong.
func (a *APNs) checkHeader(h http.Header) (reason string) {
	kind, priority := h.Get("apns-push-type"), h.Get("apns-priority")
	suffix, isPushType := topicSuffixes[kind]
	app, ofType := strings.CutSuffix(h.Get("apns-topic"), suffix)
	_, badExpiration := strconv.ParseInt(h.Get("apns-expiration"), 10, 64)
	switch {
	case h.Get("apns-topic") == "":
		return "MissingTopic"
	case !isPushType:
		return "InvalidPushType"
	case !ofType || app != a.Topic && !slices.Contains(a.Topics, app):
		return "TopicDisallowed"
	case priority != "" && priority != "1" && priority != "5" && priority != "10", kind == "background" && priority != "5":
		return "BadPriority"
	case h.Get("apns-expiration") != "" && badExpiration != nil:
		return "BadExpirationDate"
	case len(h.Get("apns-collapse-id")) > 64:
		return "BadCollapseId"
	case h.Get("apns-id") != "" && !uuid.MatchString(h.Get("apns-id")):
		return "BadMessageId"
	}
	return ""
}

// checkToken verifies a provider token, and that there is not a new one too often.
func (a *APNs) checkToken(authorization string) (status int, reason string) {
	token, ok := strings.CutPrefix(authorization, "bearer ")
	if !ok {
		return http.StatusForbidden, "MissingProviderToken"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c, now := a.claims, time.Now()
	if token != a.token {
		var kid string
		var err error
		c, kid, err = verifyToken(token, "ES256", a.public)
		if err != nil || kid != a.KeyID || c.Issuer != a.TeamID {
			return http.StatusForbidden, "InvalidProviderToken"
		}
	}
	issued := time.Unix(c.Issued, 0)
	if now.Sub(issued) > time.Hour || issued.Sub(now) > 5*time.Minute {
		return http.StatusForbidden, "ExpiredProviderToken"
	}
	if token != a.token {
		if a.token != "" && now.Sub(a.since) < 20*time.Minute {
			return http.StatusTooManyRequests, "TooManyProviderTokenUpdates"
		}
		a.token, a.claims, a.since = token, c, now
	}
	return 0, ""
}
