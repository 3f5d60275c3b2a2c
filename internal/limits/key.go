package limits

import "strings"

var (
	keyEscaper   = strings.NewReplacer("%", "%25", ",", "%2C")
	keyUnescaper = strings.NewReplacer("%25", "%", "%2C", ",")
)

// JoinKey writes the values of a limit's key between commas. In a value, a comma is %2C and a percent sign is %25.
func JoinKey(values []string) string {
	var b strings.Builder
	for i, value := range values {
		value = keyEscaper.Replace(value)
		if len(values) == 1 {
			return value
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(value)
	}
	return b.String()
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
