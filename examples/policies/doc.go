// Package policies is a test: each policy file beside it is run in a queue, and by the limiter alone, in virtual time.
//
// A recipe (recipes_test.go) is a file, traffic of which some is noisy, and what the file promises in the words of the
// service whose limits these are. A textbook (textbook_test.go) judges the promises from the instants at which calls
// started. It shares no code with the rules, and its numbers are not read from the file.
//
//   - TestInAQueue: no promise is broken, and calls that are not noisy wait as long as without the noise.
//   - TestByTheLimiter: no promise is broken where callers ask package throttle/limits.
//   - TestAWeakerPolicyIsNoticed: each number of each file is made weaker, and the textbook has to notice.
//
// The pages show these files; package test/repo checks that.
package policies
