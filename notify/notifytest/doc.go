// Package notifytest is four providers of push notifications for tests and for trying
// things out: [APNs], [FCM], [WebPush] and [Webhook]. They speak the real protocols over
// TLS and HTTP/2, verify whatever the real ones would (signatures, tokens, headers, limits;
// what is encrypted they decrypt), and answer deviations as those would.
//
//	apns, err := notifytest.NewAPNs(notifytest.Options{})
//	...
//	defer apns.Close()
//	sender, err := notify.NewAPNs(notify.APNsConfig{
//		Key: apns.Key, KeyID: apns.KeyID, TeamID: apns.TeamID, Topic: apns.Topic,
//		Wire: notify.Wire{URL: apns.URL, RootCAs: apns.RootCAs, Dial: apns.Dial},
//	})
//
// A provider's [Host.Answer] makes trouble on demand: a 429 with Retry-After, a 503, a dead
// token, an answer in HTML, none at all, a connection that breaks. [Host.Received] is what
// arrived, and when: limits are best measured there.
//
// By default the network is in memory, so that a whole fleet and its providers can run in
// a [testing/synctest] bubble.
package notifytest
