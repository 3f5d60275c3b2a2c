// Package service has what a program around a [queue.Worker] needs, as the command worker has it: a file of policies that is
// kept in force ([PolicyFile]), metrics and probes ([Monitor]), and what the operator's command reads: the starts, for
// waterclock verify ([Journal]), and the offers, for waterclock plan ([Recorder]). Each can be used without the others.
//
// A whole program is in examples/service; docs/first-service.md goes through it.
package service
