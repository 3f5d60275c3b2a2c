package notify

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"
)

const minute = time.Minute

// fcmBody is an error as FCM writes it.
func fcmBody(status, details string) string {
	return fmt.Sprintf(`{"error":{"code":0,"message":"text","status":%q,"details":[%s]}}`, status, details)
}

func fcmCode(code string) string {
	return fmt.Sprintf(`{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":%q}`, code)
}

func quota(description string) string { return quotaOf("x", description) }

func quotaOf(subject, description string) string {
	return fmt.Sprintf(`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"subject":%q,"description":%q}]}`, subject, description)
}

const badToken = `{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"message.token"}]}`

func apnsBody(reason string) string { return fmt.Sprintf(`{"reason":%q}`, reason) }

// The providers' answers and what each means: every row of their documented errors, and
// of those that are not documented but happen.
var matrix = []struct {
	provider   string
	classify   func(reply) Outcome
	status     int
	body       string
	retryAfter string
	want       Action
	after      time.Duration
	doubtful   bool
	code       string
}{
	{"fcm", classifyFCM, 200, `{"name":"projects/p/messages/1"}`, "", Done, 0, false, ""},
	{"fcm", classifyFCM, 400, fcmBody("INVALID_ARGUMENT", fcmCode("INVALID_ARGUMENT")+","+badToken), "", Forget, 0, true, "INVALID_ARGUMENT"},
	{"fcm", classifyFCM, 400, `{"error":{"status":"INVALID_ARGUMENT","message":"The registration token is not a valid FCM registration token"}}`, "", Forget, 0, true, "INVALID_ARGUMENT"},
	{"fcm", classifyFCM, 400, fcmBody("INVALID_ARGUMENT", fcmCode("INVALID_ARGUMENT")), "", Drop, 0, false, "INVALID_ARGUMENT"},
	{"fcm", classifyFCM, 401, fcmBody("UNAUTHENTICATED", `{"reason":"ACCESS_TOKEN_EXPIRED"}`), "", Halt, 0, false, "ACCESS_TOKEN_EXPIRED"},
	{"fcm", classifyFCM, 401, fcmBody("UNAUTHENTICATED", ""), "", Halt, 0, false, "UNAUTHENTICATED"},
	{"fcm", classifyFCM, 401, fcmBody("UNAUTHENTICATED", fcmCode("THIRD_PARTY_AUTH_ERROR")), "", Retry, minute, true, "THIRD_PARTY_AUTH_ERROR"},
	{"fcm", classifyFCM, 403, fcmBody("PERMISSION_DENIED", fcmCode("SENDER_ID_MISMATCH")), "", Forget, 0, true, "SENDER_ID_MISMATCH"},
	{"fcm", classifyFCM, 403, fcmBody("PERMISSION_DENIED", ""), "", Halt, 0, false, "PERMISSION_DENIED"},
	{"fcm", classifyFCM, 404, fcmBody("NOT_FOUND", fcmCode("UNREGISTERED")), "", Forget, 0, false, "UNREGISTERED"},
	{"fcm", classifyFCM, 404, fcmBody("NOT_FOUND", ""), "", Halt, 0, false, "NOT_FOUND"},
	{"fcm", classifyFCM, 404, "<html>no such page</html>", "", Halt, 0, false, ""},
	{"fcm", classifyFCM, 302, "", "", Halt, 0, false, ""},
	{"fcm", classifyFCM, 413, "", "", Drop, 0, false, ""},
	{"fcm", classifyFCM, 408, "", "", Retry, 10 * time.Second, false, ""},
	{"fcm", classifyFCM, 409, fcmBody("ABORTED", ""), "", Retry, 10 * time.Second, false, "ABORTED"},
	{"fcm", classifyFCM, 499, fcmBody("CANCELLED", ""), "", Retry, 10 * time.Second, false, "CANCELLED"},
	{"fcm", classifyFCM, 429, fcmBody("RESOURCE_EXHAUSTED", fcmCode("QUOTA_EXCEEDED")+","+quota("message rate of the device exceeded")), "", Defer, minute, false, "QUOTA_EXCEEDED"},
	{"fcm", classifyFCM, 429, fcmBody("RESOURCE_EXHAUSTED", fcmCode("QUOTA_EXCEEDED")+","+quota("device")), "120", Defer, 2 * minute, false, "QUOTA_EXCEEDED"},
	{"fcm", classifyFCM, 429, fcmBody("RESOURCE_EXHAUSTED", fcmCode("QUOTA_EXCEEDED")+","+quota("Device")), "5", Defer, minute, false, "QUOTA_EXCEEDED"},
	{"fcm", classifyFCM, 429, fcmBody("RESOURCE_EXHAUSTED", fcmCode("QUOTA_EXCEEDED")+","+quota("message rate of the topic exceeded")), "", Defer, minute, false, "QUOTA_EXCEEDED"},
	{"fcm", classifyFCM, 429, fcmBody("RESOURCE_EXHAUSTED", fcmCode("QUOTA_EXCEEDED")+","+quotaOf("device:1", "")), "", Defer, minute, false, "QUOTA_EXCEEDED"},
	{"fcm", classifyFCM, 429, fcmBody("RESOURCE_EXHAUSTED", fcmCode("QUOTA_EXCEEDED")+","+quota("project")), "", Pause, minute, false, "QUOTA_EXCEEDED"},
	{"fcm", classifyFCM, 429, fcmBody("RESOURCE_EXHAUSTED", fcmCode("QUOTA_EXCEEDED")), "5", Pause, 5 * time.Second, false, "QUOTA_EXCEEDED"},
	{"fcm", classifyFCM, 429, "<html>too many</html>", "", Pause, minute, false, ""},
	{"fcm", classifyFCM, 500, fcmBody("INTERNAL", fcmCode("INTERNAL")), "", Retry, 10 * time.Second, false, "INTERNAL"},
	{"fcm", classifyFCM, 502, "<html>bad gateway</html>", "", Retry, 10 * time.Second, false, ""},
	{"fcm", classifyFCM, 500, "", "90", Retry, 90 * time.Second, false, ""},
	{"fcm", classifyFCM, 504, "<html>", "", Retry, 10 * time.Second, false, ""},
	{"fcm", classifyFCM, 503, fcmBody("UNAVAILABLE", fcmCode("UNAVAILABLE")), "", Pause, 0, false, "UNAVAILABLE"},
	{"fcm", classifyFCM, 503, fcmBody("UNAVAILABLE", fcmCode("UNAVAILABLE")), "30", Pause, 30 * time.Second, false, "UNAVAILABLE"},

	{"apns", classifyAPNs, 200, "", "", Done, 0, false, ""},
	{"apns", classifyAPNs, 410, `{"reason":"Unregistered","timestamp":1700000000000}`, "", Forget, 0, false, "Unregistered"},
	{"apns", classifyAPNs, 410, apnsBody("ExpiredToken"), "", Forget, 0, false, "ExpiredToken"},
	{"apns", classifyAPNs, 410, apnsBody("Tomorrow"), "", Forget, 0, true, "Tomorrow"},
	{"apns", classifyAPNs, 410, "<html>", "", Forget, 0, true, ""},
	{"apns", classifyAPNs, 400, apnsBody("BadDeviceToken"), "", Forget, 0, true, "BadDeviceToken"},
	{"apns", classifyAPNs, 400, apnsBody("DeviceTokenNotForTopic"), "", Drop, 0, true, "DeviceTokenNotForTopic"},
	{"apns", classifyAPNs, 400, apnsBody("BadTopic"), "", Halt, 0, false, "BadTopic"},
	{"apns", classifyAPNs, 400, apnsBody("MissingTopic"), "", Halt, 0, false, "MissingTopic"},
	{"apns", classifyAPNs, 400, apnsBody("TopicDisallowed"), "", Halt, 0, false, "TopicDisallowed"},
	{"apns", classifyAPNs, 404, apnsBody("BadPath"), "", Halt, 0, false, "BadPath"},
	{"apns", classifyAPNs, 405, apnsBody("MethodNotAllowed"), "", Halt, 0, false, "MethodNotAllowed"},
	{"apns", classifyAPNs, 400, "<html>", "", Halt, 0, false, ""},
	{"apns", classifyAPNs, 400, apnsBody("PayloadEmpty"), "", Drop, 0, false, "PayloadEmpty"},
	{"apns", classifyAPNs, 400, apnsBody("BadCollapseId"), "", Drop, 0, false, "BadCollapseId"},
	{"apns", classifyAPNs, 400, apnsBody("BadPriority"), "", Drop, 0, false, "BadPriority"},
	{"apns", classifyAPNs, 400, apnsBody("BadExpirationDate"), "", Drop, 0, false, "BadExpirationDate"},
	{"apns", classifyAPNs, 400, apnsBody("BadMessageId"), "", Drop, 0, false, "BadMessageId"},
	{"apns", classifyAPNs, 400, apnsBody("InvalidPushType"), "", Drop, 0, false, "InvalidPushType"},
	{"apns", classifyAPNs, 400, apnsBody("DuplicateHeaders"), "", Drop, 0, false, "DuplicateHeaders"},
	{"apns", classifyAPNs, 400, apnsBody("MissingDeviceToken"), "", Drop, 0, false, "MissingDeviceToken"},
	{"apns", classifyAPNs, 413, apnsBody("PayloadTooLarge"), "", Drop, 0, false, "PayloadTooLarge"},
	{"apns", classifyAPNs, 413, "<html>", "", Drop, 0, false, ""},
	{"apns", classifyAPNs, 400, apnsBody("IdleTimeout"), "", Retry, 0, false, "IdleTimeout"},
	{"apns", classifyAPNs, 403, apnsBody("ExpiredProviderToken"), "", Halt, 0, false, "ExpiredProviderToken"},
	{"apns", classifyAPNs, 403, apnsBody("InvalidProviderToken"), "", Halt, 0, false, "InvalidProviderToken"},
	{"apns", classifyAPNs, 403, apnsBody("MissingProviderToken"), "", Halt, 0, false, "MissingProviderToken"},
	{"apns", classifyAPNs, 403, apnsBody("BadEnvironmentKeyIdInToken"), "", Halt, 0, false, "BadEnvironmentKeyIdInToken"},
	{"apns", classifyAPNs, 403, apnsBody("UnrelatedKeyIdInToken"), "", Halt, 0, false, "UnrelatedKeyIdInToken"},
	{"apns", classifyAPNs, 403, apnsBody("BadCertificateEnvironment"), "", Halt, 0, false, "BadCertificateEnvironment"},
	{"apns", classifyAPNs, 403, apnsBody("BadCertificate"), "", Halt, 0, false, "BadCertificate"},
	{"apns", classifyAPNs, 403, apnsBody("Forbidden"), "", Halt, 0, false, "Forbidden"},
	{"apns", classifyAPNs, 403, "<html>", "", Halt, 0, false, ""},
	{"apns", classifyAPNs, 429, apnsBody("TooManyRequests"), "", Defer, minute, false, "TooManyRequests"},
	{"apns", classifyAPNs, 429, apnsBody("TooManyRequests"), "7", Defer, 7 * time.Second, false, "TooManyRequests"},
	{"apns", classifyAPNs, 429, "<html>", "", Defer, minute, false, ""},
	{"apns", classifyAPNs, 429, apnsBody("TooManyProviderTokenUpdates"), "", Pause, 20 * minute, false, "TooManyProviderTokenUpdates"},
	{"apns", classifyAPNs, 500, apnsBody("InternalServerError"), "", Pause, 0, false, "InternalServerError"},
	{"apns", classifyAPNs, 503, apnsBody("ServiceUnavailable"), "", Pause, 0, false, "ServiceUnavailable"},
	{"apns", classifyAPNs, 503, apnsBody("Shutdown"), "15", Retry, 15 * time.Second, false, "Shutdown"},
	{"apns", classifyAPNs, 502, "<html>", "", Pause, 0, false, ""},

	{"webpush", classifyWebPush, 406, "", "", Defer, minute, false, ""},
	{"webpush", classifyWebPush, 406, "", "30", Defer, 30 * time.Second, false, ""},
	{"webpush", classifyWebPush, 408, "", "", Retry, 0, false, ""},
	{"webpush", classifyWebPush, 425, "", "", Retry, 0, false, ""},
	{"webpush", classifyWebPush, 201, "", "", Done, 0, false, ""},
	{"webpush", classifyWebPush, 200, "", "", Done, 0, false, ""},
	{"webpush", classifyWebPush, 202, "", "", Done, 0, false, ""},
	{"webpush", classifyWebPush, 404, "", "", Forget, 0, false, ""},
	{"webpush", classifyWebPush, 410, "push subscription has unsubscribed or expired.", "", Forget, 0, false, ""},
	{"webpush", classifyWebPush, 400, `{"reason":"VapidPkHashMismatch"}`, "", Forget, 0, true, "VapidPkHashMismatch"},
	{"webpush", classifyWebPush, 403, "the VAPID credentials in the authorization header do not correspond to the credentials used to create the subscriptions.", "", Forget, 0, true, ""},
	{"webpush", classifyWebPush, 400, `{"reason":"BadWebPushTopic"}`, "", Drop, 0, false, "BadWebPushTopic"},
	{"webpush", classifyWebPush, 400, "", "", Drop, 0, false, ""},
	{"webpush", classifyWebPush, 301, "", "", Drop, 0, false, ""},
	{"webpush", classifyWebPush, 413, "", "", Drop, 0, false, ""},
	{"webpush", classifyWebPush, 401, "", "", Drop, 0, true, ""},
	{"webpush", classifyWebPush, 403, `{"reason":"BadJwtToken"}`, "", Drop, 0, true, "BadJwtToken"},
	{"webpush", classifyWebPush, 400, `{"reason":"BadJwtToken"}`, "", Drop, 0, true, "BadJwtToken"},
	{"webpush", classifyWebPush, 403, "", "", Drop, 0, true, ""},
	{"webpush", classifyWebPush, 429, "", "", Defer, minute, false, ""},
	{"webpush", classifyWebPush, 429, "", "9", Defer, 9 * time.Second, false, ""},
	{"webpush", classifyWebPush, 503, `{"code":503,"errno":201}`, "120", Pause, 2 * minute, false, ""},
	{"webpush", classifyWebPush, 503, `{"code":503,"errno":202}`, "", Pause, 0, false, ""},
	{"webpush", classifyWebPush, 500, "", "", Retry, 0, false, ""},
	{"webpush", classifyWebPush, 502, "<html>", "", Retry, 0, false, ""},

	{"webhook", classifyWebhook, 200, "", "", Done, 0, false, ""},
	{"webhook", classifyWebhook, 204, "", "", Done, 0, false, ""},
	{"webhook", classifyWebhook, 299, "", "", Done, 0, false, ""},
	{"webhook", classifyWebhook, 301, "", "", Retry, 0, false, ""},
	{"webhook", classifyWebhook, 400, "", "", Retry, 0, false, ""},
	{"webhook", classifyWebhook, 401, "", "", Retry, 0, false, ""},
	{"webhook", classifyWebhook, 404, "", "", Retry, 0, false, ""},
	{"webhook", classifyWebhook, 410, "", "", Forget, 0, false, ""},
	{"webhook", classifyWebhook, 429, "", "", Defer, minute, false, ""},
	{"webhook", classifyWebhook, 502, "", "", Defer, minute, false, ""},
	{"webhook", classifyWebhook, 503, "", "3", Defer, 3 * time.Second, false, ""},
	{"webhook", classifyWebhook, 504, "", "", Defer, minute, false, ""},
	{"webhook", classifyWebhook, 500, "", "", Retry, 0, false, ""},
}

func TestMatrix(t *testing.T) {
	for _, row := range matrix {
		header := http.Header{}
		if row.retryAfter != "" {
			header.Set("Retry-After", row.retryAfter)
		}
		got := row.classify(reply{status: row.status, header: header, body: []byte(row.body)})
		if got.Action != row.want || got.After != row.after || got.Doubtful != row.doubtful || got.Reached {
			t.Errorf("%s %d %s: got %+v, want %s after %v, doubtful %v", row.provider, row.status, row.body, got, row.want, row.after, row.doubtful)
		}
		var e *ProviderError
		if row.want == Done && got.Err != nil || row.want != Done && !errors.As(got.Err, &e) {
			t.Errorf("%s %d: error %v", row.provider, row.status, got.Err)
		} else if e != nil && (e.Provider != row.provider || e.Status != row.status || e.Code != row.code) {
			t.Errorf("%s %d: error %+v, want code %q", row.provider, row.status, e, row.code)
		}
	}
	gone := classifyAPNs(reply{status: 410, body: []byte(`{"reason":"Unregistered","timestamp":1700000000000}`)})
	if !gone.Since.Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("gone since %v", gone.Since)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	tests := []struct {
		retryAfter, date string
		want             time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"5", "", 5 * time.Second},
		{" 120 ", "", 2 * minute},
		{"-5", "", 0},
		{"1.5", "", 0},
		{"soon", "", 0},
		{"999999999", "", 24 * time.Hour},
		{"99999999999999999999", "", 0},
		{"Sat, 21 Nov 2026 08:00:30 GMT", "", 30 * time.Second},
		{"Sat, 21 Nov 2026 07:59:30 GMT", "", 0},
		{"Sun, 21 Nov 2027 08:00:30 GMT", "", 24 * time.Hour},
		{"Saturday, 21-Nov-26 08:00:30 GMT", "", 30 * time.Second},
		// The provider's clock is a minute ahead of ours: it means 30 s all the same.
		{"Sat, 21 Nov 2026 08:01:30 GMT", "Sat, 21 Nov 2026 08:01:00 GMT", 30 * time.Second},
	}
	for _, tt := range tests {
		header := http.Header{"Retry-After": {tt.retryAfter}, "Date": {tt.date}}
		if got := (reply{header: header, now: now}).retryAfter(); got != tt.want {
			t.Errorf("Retry-After %q, Date %q: %v, want %v", tt.retryAfter, tt.date, got, tt.want)
		}
	}
}

// plain is what of an answer an error may repeat.
var plain = regexp.MustCompile(`^\w{0,64}$`)

// Whatever is answered, there is one of the known actions, and the error repeats nothing
// but a code.
func FuzzClassify(f *testing.F) {
	for _, row := range matrix {
		f.Add(row.status, row.body, row.retryAfter)
	}
	f.Add(410, `{"reason":"Unregistered","timestamp":-1}`, "Sat, 21 Nov 2026 08:00:30 GMT")
	f.Add(400, `{"reason":"s3cr3t-token s3cr3t-token"}`, "")
	f.Add(400, `{"error":{"details":[null,{"errorCode":"a b","fieldViolations":[null]}]}}`, "")
	f.Fuzz(func(t *testing.T, status int, body, retryAfter string) {
		r := reply{status: status, header: http.Header{"Retry-After": {retryAfter}}, body: []byte(body)}
		for name, classify := range map[string]func(reply) Outcome{
			"fcm": classifyFCM, "apns": classifyAPNs, "webpush": classifyWebPush, "webhook": classifyWebhook,
		} {
			o := classify(r)
			switch o.Action {
			case Done:
				if status < 200 || status > 299 {
					t.Fatalf("%s: %d is no success", name, status)
				}
			case Retry, Defer, Pause, Halt, Drop, Forget:
				var e *ProviderError
				if !errors.As(o.Err, &e) || !plain.MatchString(e.Code) {
					t.Fatalf("%s: error %v", name, o.Err)
				}
			default:
				t.Fatalf("%s: action %q", name, o.Action)
			}
			if o.After < 0 || o.After > maxRetryAfter {
				t.Fatalf("%s: after %v", name, o.After)
			}
		}
	})
}

// Whatever Google answers, there is a token that can be used for a while, or an error that
// repeats nothing but a code.
func FuzzAccessToken(f *testing.F) {
	f.Add(200, `{"access_token":"ya29.a","expires_in":3599,"token_type":"Bearer"}`)
	f.Add(200, `{"access_token":"ya29.a","expires_in":1}`)
	f.Add(200, `{"access_token":"ya29.a","expires_in":-1}`)
	f.Add(400, `{"error":"invalid grant of s3cr3t","error_description":"s3cr3t"}`)
	f.Add(200, `<html>`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		token, life, err := readAccessToken(reply{status: status, body: []byte(body)})
		if err == nil && (status != http.StatusOK || token == "" || life <= 0 || life > time.Hour) {
			t.Fatalf("token %q for %v", token, life)
		}
		var e *ProviderError
		if err != nil && (!errors.As(err, &e) || token != "" || !plain.MatchString(e.Code)) {
			t.Fatalf("token %q, error %v", token, err)
		}
	})
}
