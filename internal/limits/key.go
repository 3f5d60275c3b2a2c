package limits

import "strings"

var (
	keyEscaper   = strings.NewReplacer("%", "%25", ",", "%2C")
	keyUnescaper = strings.NewReplacer("%25", "%", "%2C", ",")
)

// JoinKey writes the values of a limit's key between commas. In a value, a comma is %2C and a percent sign is %25.
func JoinKey(values []string) string {
	escaped := make([]string, len(values))
	for i, value := range values {
		escaped[i] = keyEscaper.Replace(value)
	}
	return strings.Join(escaped, ",")
}

// SplitKey reads what [JoinKey] wrote; nil for "".
func SplitKey(key string) []string {
	if key == "" {
		return nil
	}
	values := strings.Split(key, ",")
	for i, value := range values {
		values[i] = keyUnescaper.Replace(value)
	}
	return values
}
