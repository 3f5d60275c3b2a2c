package policies

import (
	"time"
)

// A recipe is a policy file with traffic and what the file promises.
type recipe struct {
	file     string
	lasts    time.Duration // how long the traffic is watched
	traffic  []call
	promises []promise
	places   int           // of the worker; 1000 if none are given
	shared   time.Duration // how much longer the calm wait because they share an account's limit with the noisy
}

var recipes = []recipe{
	{
		file: "fcm.yaml", lasts: 25 * time.Minute, shared: 25 * time.Millisecond,
		traffic: all(
			caller{typ: "fcm", keys: key("device", "noisy")}.floods(5500),
			caller{typ: "fcm_collapsible", user: "bob", keys: key("device", "collapsing")}.floods(40),
			caller{typ: "fcm", tenant: "big", user: "many", from: time.Minute}.users(300, flood(1)),
			caller{typ: "fcm", tenant: "calm", keys: key("device", "calm")}.calmly(70, 20*time.Second),
			caller{typ: "apns", user: "bob"}.calmly(70, 20*time.Second),
		),
		promises: []promise{
			bucket("9,500 a second in all", ofType("fcm", everyone), 1, 9500, time.Second),
			most("240 a minute to a device", ofType("fcm", keyed("device")), 240, time.Minute),
			most("5,000 an hour to a device", ofType("fcm", keyed("device")), 5000, time.Hour),
			bucket("20 collapsible ones at once, and one in three minutes", ofType("fcm_collapsible", keyed("device")), 20, 1, 3*time.Minute),
		},
	},
	{
		file: "telegram.yaml", lasts: 90 * time.Second, shared: 150 * time.Millisecond,
		traffic: all(
			caller{keys: key("bot", "b", "chat", "busy")}.floods(100),
			caller{typ: "group_message", keys: key("bot", "b", "chat", "group")}.floods(60),
			caller{typ: "group_message", keys: key("bot", "other", "chat", "group")}.floods(60),
			caller{tenant: "news", user: "reader", from: 10 * time.Second, keys: key("bot", "b")}.users(100, flood(1)),
			caller{tenant: "talk", user: "calm", keys: key("bot", "b", "chat", "calm")}.calmly(15, 5*time.Second),
			caller{tenant: "talk", user: "calm", typ: "group_message", keys: key("bot", "b", "chat", "calm group")}.calmly(15, 5*time.Second),
		),
		promises: []promise{
			bucket("29 a second from a bot", keyed("bot"), 1, 29, time.Second),
			most("one a second to a chat", keyed("bot", "chat"), 1, time.Second),
			most("20 a minute to a group", ofType("group", keyed("bot", "chat")), 20, time.Minute),
		},
	},
	{
		file: "shopify.yaml", lasts: 30 * time.Second,
		traffic: all(
			caller{typ: "rest", keys: key("shop", "noisy")}.floods(300),
			caller{typ: "rest", keys: key("shop", "plus-noisy")}.floods(500),
			caller{typ: "graphql", keys: key("shop", "noisy"), costs: costing("points", 100)}.floods(60),
			caller{typ: "rest", keys: key("shop", "calm")}.calmly(25, time.Second),
			caller{typ: "graphql", keys: key("shop", "calm"), costs: costing("points", 40)}.calmly(25, time.Second),
		),
		promises: []promise{
			bucket("40 and 2 a second of a shop", ofType("rest", but("plus-noisy", keyed("shop"))), 40, 2, time.Second),
			bucket("80 and 4 a second of a Plus shop", ofType("rest", only("plus-noisy", keyed("shop"))), 80, 4, time.Second),
			bucket("1,000 points and 50 a second of a shop", ofType("graphql", in("points", keyed("shop"))), 1000, 50, time.Second),
		},
	},
	{
		file: "mail.yaml", lasts: time.Minute,
		traffic: all(
			caller{user: "u", keys: key("domain", "slow.example"), takes: 3 * time.Second}.users(30, flood(5)),
			caller{user: "u", keys: key("domain", "fast.example")}.users(30, flood(5)),
			caller{user: "g", keys: key("domain", "gmail.com"), takes: 600 * time.Millisecond}.users(40, flood(8)),
			caller{user: "spammer", keys: key("domain", "here.example")}.floods(15),
			caller{user: "spammer", keys: key("domain", "there.example")}.floods(15),
			caller{user: "calm", keys: key("domain", "calm.example")}.calmly(9, 6*time.Second),
		),
		promises: []promise{
			bucket("10 a second to a domain", but("gmail.com", keyed("domain")), 1, 10, time.Second),
			bucket("100 a second to Gmail", only("gmail.com", keyed("domain")), 1, 100, time.Second),
			atOnce("20 at once to a domain", but("gmail.com", keyed("domain")), 20),
			atOnce("50 at once to Gmail", only("gmail.com", keyed("domain")), 50),
			most("10 a minute of a user", user, 10, time.Minute),
		},
	},
	{
		file: "llm.yaml", lasts: 3 * time.Minute,
		traffic: all(
			caller{user: "r", keys: key("model", "small"), costs: costing("tokens", 10)}.users(9, flood(100)),
			caller{user: "t", keys: key("model", "large"), costs: costing("tokens", 1000)}.users(10, flood(45)),
			caller{user: "spender", keys: key("model", "other"), costs: costing("tokens", 1000)}.floods(300),
			caller{user: "slow", keys: key("model", "slow"), costs: costing("tokens", 10), takes: 5 * time.Second}.floods(10),
			caller{user: "calm", keys: key("model", "calm"), costs: costing("tokens", 100)}.users(4, func(c caller) []call { return c.calmly(30, 5*time.Second) }),
		),
		promises: []promise{
			bucket("500 requests a minute of a model", keyed("model"), 500, 500, time.Minute),
			bucket("90,000 tokens a minute of a model", in("tokens", keyed("model")), 90000, 90000, time.Minute),
			most("200,000 tokens a day for a user", in("tokens", user), 200000, 24*time.Hour),
			atOnce("two at once of a user", user, 2),
		},
	},
	{
		file: "ec2.yaml", lasts: time.Minute,
		traffic: all(
			caller{typ: "DescribeHosts"}.floods(1500),
			caller{typ: "DescribeVolumes"}.floods(1500),
			caller{typ: "RunInstances", costs: costing("instances", 1)}.floods(200),
			caller{tenant: "large", typ: "RunInstances", costs: costing("instances", 100)}.floods(40),
			caller{tenant: "calm", typ: "DescribeHosts"}.calmly(55, time.Second),
			caller{tenant: "calm", typ: "RunInstances", costs: costing("instances", 2)}.calmly(11, 5*time.Second),
		),
		promises: []promise{
			bucket("100 and 20 a second of a kind of call", ofType("Describe", typeOf), 100, 20, time.Second),
			bucket("5 and 2 a second of RunInstances", ofType("RunInstances", tenant), 5, 2, time.Second),
			bucket("1,000 instances and 2 a second", ofType("RunInstances", in("instances", tenant)), 1000, 2, time.Second),
		},
	},
	{
		file: "stripe.yaml", lasts: 30 * time.Second, places: 100,
		traffic: all(
			caller{tenant: "fast", typ: "post.charge"}.floods(4000),
			caller{tenant: "slow", typ: "get.list", takes: 2 * time.Second}.floods(60),
			caller{tenant: "tester", typ: "test.charge", takes: 2 * time.Second, from: 10 * time.Second}.tenants(6, flood(40)),
			caller{tenant: "reader", typ: "get.list", takes: 2 * time.Second, from: 10 * time.Second}.tenants(6, flood(40)),
			caller{tenant: "calm", typ: "post.charge", takes: 100 * time.Millisecond}.calmly(110, 250*time.Millisecond),
		),
		promises: []promise{
			bucket("500 and 100 a second of a customer", tenant, 500, 100, time.Second),
			atOnce("20 at once of a customer", tenant, 20),
			atOnce("80 of 100 places for what is not critical", notCritical, 80),
			atOnce("50 of 100 places for tests", ofType("test.", everyone), 50),
		},
	},
	{
		file: "marketing.yaml", lasts: 10 * time.Minute,
		traffic: all(
			caller{typ: "marketing"}.floods(20),
			caller{typ: "chat"}.calmly(100, 5*time.Second),
		),
		promises: []promise{most("5 a day to a user", ofType("marketing", user), 5, 24*time.Hour)},
	},
	{
		file: "ratelimit-1.yaml", lasts: 4 * time.Second,
		traffic: all(
			caller{keys: key("database", "users")}.floods(2500),
			caller{keys: key("database", "default")}.floods(2500),
			caller{keys: key("database", "orders")}.users(20, func(c caller) []call { return c.calmly(100, 30*time.Millisecond) }),
		),
		promises: []promise{
			most("500 a second to users", only("users", keyed("database")), 500, time.Second),
			most("500 a second to default", only("default", keyed("database")), 500, time.Second),
		},
	},
	{
		file: "ratelimit-2.yaml", lasts: time.Minute,
		traffic: all(
			caller{typ: "marketing", keys: key("to_number", "2061111111")}.floods(20),
			caller{typ: "receipt", from: time.Second, keys: key("to_number", "2061111111")}.floods(200),
			caller{typ: "marketing", user: "calm", keys: key("to_number", "2062222222")}.calmly(5, 10*time.Second),
			caller{typ: "receipt", user: "calm", keys: key("to_number", "2062222222")}.calmly(50, time.Second),
		),
		promises: []promise{
			most("5 marketing messages a day to a number", ofType("marketing", keyed("to_number")), 5, 24*time.Hour),
			most("100 messages a day to a number", keyed("to_number"), 100, 24*time.Hour),
		},
	},
	{
		file: "ratelimit-3.yaml", lasts: 8 * time.Second,
		traffic: all(
			caller{keys: key("remote_address", "50.0.0.1")}.floods(200),
			caller{keys: key("remote_address", "50.0.0.2")}.calmly(60, 125*time.Millisecond),
		),
		promises: []promise{most("10 a second from an address", keyed("remote_address"), 10, time.Second)},
	},
	{
		file: "ratelimit-4.yaml", lasts: 4 * time.Second,
		traffic: all(
			caller{keys: key("key", "value", "subkey", "subvalue")}.floods(1500),
			caller{keys: key("key", "value", "subkey", "another")}.floods(1500),
			caller{user: "calm", keys: key("key", "value")}.users(20, func(c caller) []call { return c.calmly(100, 30*time.Millisecond) }),
			caller{user: "calm", keys: key("key", "else", "subkey", "subvalue")}.users(20, func(c caller) []call { return c.calmly(100, 30*time.Millisecond) }),
		),
		promises: []promise{most("300 a second of (key, value), (subkey, …)", but("else/subvalue", keyed("key", "subkey")), 300, time.Second)},
	},
	{
		file: "ratelimit-5.yaml", lasts: 150 * time.Second,
		traffic: all(
			caller{keys: key("azure", "a")}.floods(400),
			caller{keys: key("ldap", "a")}.calmly(290, 500*time.Millisecond),
		),
		promises: []promise{most("100 a minute to Azure", keyed("azure"), 100, time.Minute)},
	},
	{
		file: "ratelimit-6.yaml", lasts: 5 * time.Second,
		traffic: all(
			caller{keys: key("service", "auth-service", "user", "user-b")}.floods(200),
			caller{keys: key("service", "auth-service", "user", "user-a")}.calmly(450, 10*time.Millisecond),
			caller{keys: key("service", "auth-service", "user", "user-c")}.calmly(450, 10*time.Millisecond),
		),
		promises: []promise{most("20 a second of user-b", only("auth-service/user-b", keyed("service", "user")), 20, time.Second)},
	},
	{
		file: "ratelimit-7.yaml", lasts: 5 * time.Second,
		traffic: all(
			caller{keys: key("key_1", "value_1", "key_2", "none", "user", "bkthomps")}.floods(50),
			caller{keys: key("key_1", "value_1", "key_2", "value_2", "user", "bkthomps")}.floods(60),
			caller{keys: key("key_1", "else", "key_2", "value_2", "user", "bkthomps")}.floods(60),
			caller{keys: key("key_1", "value_1", "key_2", "value_2", "user", "calm")}.calmly(450, 10*time.Millisecond),
		),
		promises: []promise{
			most("5 a second with key_1 alone", only("value_1/none/bkthomps", keyed("key_1", "key_2", "user")), 5, time.Second),
			most("10 a second with key_2", only("value_2/bkthomps", keyed("key_2", "user")), 10, time.Second),
		},
	},
	{
		file: "ratelimit-8.yaml", lasts: 150 * time.Second,
		traffic: all(
			caller{keys: key("key1", "unspecified_value")}.floods(50),
			caller{keys: key("key1", "value1")}.floods(90),
			caller{keys: key("key1", "unspecified_value2")}.calmly(20, 7*time.Second),
		),
		promises: []promise{
			most("10 a minute of a value", but("value1", keyed("key1")), 10, time.Minute),
			most("20 a minute of value1", only("value1", keyed("key1")), 20, time.Minute),
		},
	},
	{
		file: "ratelimit-9.yaml", lasts: 150 * time.Second,
		traffic: all(
			caller{keys: key("key1", "value_1")}.floods(90),
			caller{keys: key("key1", "value_2")}.floods(90),
			caller{keys: key("key1", "else")}.calmly(290, 500*time.Millisecond),
		),
		promises: []promise{most("20 a minute of a value", but("else", keyed("key1")), 20, time.Minute)},
	},
}
