package envelope

import "fmt"

// StampLen is the length of a stamp. So many digits hold every instant below 2^52 µs, which is in the year 2112; stamps
// of one length sort as their instants do.
const StampLen = 13

// Stamp writes the stamp of a job that was offered at an instant, in µs. The script of offers writes the same in Lua.
func Stamp(at int64) string {
	return fmt.Sprintf("%013x", at)
}

// A Place orders the jobs that have come back to the front of a lane: by the slots of their first claims, and where these are
// the same by their stamps.
type Place struct {
	Slot  int64
	Stamp string
}

// String writes the place such that places sort as texts do.
func (p Place) String() string { return Stamp(p.Slot) + p.Stamp }

// readStamp reads a stamp, as strconv.ParseInt would. It is asked several times for each job.
func readStamp(text string) (n int64, ok bool) {
	for i := range len(text) {
		digit := int64(text[i])
		switch {
		case '0' <= digit && digit <= '9':
			digit -= '0'
		case 'a' <= digit && digit <= 'f':
			digit -= 'a' - 10
		default:
			return 0, false
		}
		n = n<<4 | digit
	}
	return n, len(text) == StampLen
}
