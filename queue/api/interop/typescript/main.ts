// A service that offers jobs, asks why one waits, pauses a tenant, and asks whether something may happen now:
//
//	WATERCLOCK_URL=http://127.0.0.1:9091 WATERCLOCK_TOKEN=… node build/main.js
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./generated/waterclock.js";

type Problem = components["schemas"]["Problem"];
type Receipt = components["schemas"]["Receipt"];

const client = createClient<paths>({
  baseUrl: process.env["WATERCLOCK_URL"] ?? "http://127.0.0.1:9091",
  headers: { Authorization: `Bearer ${process.env["WATERCLOCK_TOKEN"]}` },
});
const push = { queue: "push" };

/** Returns the answer, or throws what the problem says. */
function answered<T>({ data, error }: { data?: T; error?: Problem }): T {
  if (data === undefined) {
    throw new Error(`${error?.type}: ${error?.detail}`);
  }
  return data;
}

/** Says what became of a job. Without one of the cases this does not compile. */
function fate(receipt: Receipt): string {
  switch (receipt.status) {
    case "accepted":
    case "replaced":
      return `place ${receipt.place}, to start about ${receipt.start}`;
    case "duplicate":
      return "offered before";
    case "dropped":
      return `dropped: ${receipt.reason}`;
  }
  return receipt.status satisfies never;
}

// Offer jobs. With an ID this can be repeated safely.
const job = { tenant: "school-7", user: "teacher-42", type: "push", payload: { title: "Hello" } };
const offer = async () =>
  answered(
    await client.POST("/v1/queues/{queue}/jobs", {
      params: { path: push },
      body: [1, 2, 3].map((n) => ({ ...job, id: `letter-${n}`, priority: "high" as const })),
    }),
  ).receipts;
const receipts = await offer();
assert.deepEqual(receipts.map((r) => r.status), ["accepted", "accepted", "accepted"]);
assert.match(fate(receipts[2]!), /^place \d, to start about 2/);
assert.deepEqual((await offer()).map(fate), Array(3).fill("offered before"));

// Ask where a job is, and why the next one waits.
const state = answered(await client.GET("/v1/queues/{queue}/job", { params: { path: push, query: { id: "letter-3" } } }));
assert.equal(state.state, "waiting");
const why = answered(
  await client.GET("/v1/queues/{queue}/why", { params: { path: push, query: { tenant: "school-7", user: "teacher-42" } } }),
);
assert.equal(why.waiting, 3);
assert.equal(why.rules[0]?.scope, "user");
assert.equal(why.rules[0]?.rule, "window 2/1h");

// Pause a tenant, and go on.
const paused = answered(
  await client.POST("/v1/queues/{queue}/pause", {
    params: { path: push },
    body: { tenant: "school-7", for: "10m", reason: "their endpoint is down" },
  }),
);
assert.deepEqual(paused.items.map((p) => [p.scope, p.tenant, p.author]), [["tenant", "school-7", "panel"]]);
assert.equal(answered(await client.POST("/v1/queues/{queue}/resume", { params: { path: push }, body: { tenant: "school-7" } })).items.length, 0);

// Give one user other rules for a time: a value for each field of the key.
const overrides = answered(
  await client.PUT("/v1/queues/{queue}/overrides", {
    params: { path: push, query: { limit: "user", key: ["school-7", "teacher-42"] } },
    body: { rules: ["window 5/1h"], for: "2h" },
  }),
);
assert.deepEqual(overrides.items[0]?.key, ["school-7", "teacher-42"]);

// Ask whether something may happen now.
const decide = async (mode: components["schemas"]["DecideMode"]) => {
  const { decisions } = answered(await client.POST("/v1/decide", { body: { tenant: "school-7", user: "teacher-42", mode } }));
  return decisions[0]!;
};
for (const remaining of [1, 0]) {
  const decision = await decide("allow");
  assert.equal(decision.allowed, true);
  assert.equal(decision.remaining, remaining);
}
const refused = await decide("peek");
assert.equal(refused.allowed, false);
assert.equal(refused.outcome, "deferred");
assert.equal(refused.limit, "mails");
assert.ok(refused.wait_ms > 3_000_000 && refused.wait_ms <= 3_600_000);

// Errors are values with types of their own.
const { error: invalid } = await client.POST("/v1/queues/{queue}/jobs", { params: { path: push }, body: { ...job, tenant: "" } });
assert.equal(invalid?.type, "urn:waterclock:invalid-job");
assert.equal(invalid?.errors?.[0]?.pointer, "/tenant");
const { error: forbidden, response } = await client.POST("/v1/queues/{queue}/purge", {
  params: { path: { queue: "other" } },
  body: { tenant: "school-7" },
});
assert.equal(response.status, 403);
assert.equal(forbidden?.type, "urn:waterclock:missing-scope");
assert.deepEqual(forbidden?.missing, { scopes: ["steer"], queue: "other" });

// What there is not, does not compile.
// @ts-expect-error: no reason is called so
void client.GET("/v1/queues/{queue}/drops", { params: { path: push, query: { reason: "fulll" } } }).catch(() => {});
// @ts-expect-error: a job has a tenant
const incomplete: components["schemas"]["Job"] = { user: "teacher-42", type: "push" };
void incomplete;

console.log("ok");
