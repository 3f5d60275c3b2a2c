// Package watch tells how a queue does: its condition, its workers, what runs and what fails, its
// history, and what happens to its jobs at this moment.
//
// A [Watcher] reads what Redis knows; it needs no worker, and changes nothing that a start depends
// on. There are four ways to look:
//
//   - at one moment: [Watcher.Health] says in one word whether the queue does what its limits allow,
//     and [Watcher.Workers], [Watcher.Running], [Watcher.Retrying] and [Watcher.Failures] say more,
//   - back in time: whoever calls [Watcher.Record] once a second keeps the charts that
//     [Watcher.Chart] and [Watcher.TenantCharts] return; any number of programs may,
//   - as it happens: [Watcher.Tail] follows what becomes of jobs, [Watcher.Offers] what is offered,
//   - by a monitoring system: a [Collector] has the numbers for Prometheus.
//
// A Watcher is a [queue.Inspector] too, which knows the jobs that wait and steers the queue.
// The duration of the calls does not depend on how many jobs wait.
//
// A queue with partitions is seen as one: numbers are sums, lists are merged, and a worker, which takes
// part in each partition, is one worker. Where something is wrong in one partition, its number is said.
package watch
