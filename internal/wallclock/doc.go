// Package wallclock says what the clock on the wall of a zone shows, and when: from when on hours are open, and when a
// local day, week or month begins. It has no state and reads no clock.
//
// Instants are microseconds since the Unix epoch. A local time is what the clock shows, as the microseconds from 1970-01-01 00:00
// to it if every day had 24 hours. Between two changes of a zone's offset the two run side by side: instant + offset = local
// time. So every question is answered in local time first, where it is plain arithmetic, and then within the run of the offset;
// if the answer lies behind the run, it is asked again from the next one. Nothing else is to be said about daylight saving
// time:
//
//   - what the clock skips does not exist: hours that would open then open at the change;
//   - what the clock shows twice is open twice, or closed twice;
//   - a day begins when the clock first shows it, or a later one.
//
// The data of the zones is Go's: the system's if there is one, and the program's own otherwise.
package wallclock
