package api

// Routes returns the method and the path of each operation.
func Routes() (all [][2]string) {
	for _, op := range operations() {
		all = append(all, [2]string{op.method, op.path})
	}
	return all
}

// Milliseconds is how long a wait is told to be.
var Milliseconds = milliseconds
