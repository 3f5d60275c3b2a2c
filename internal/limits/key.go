package limits

import "strings"

// An escaper writes signs that mean something where a value stands as others. Most values have none of them: those are not looked
// at by a replacer, which takes longer than all else that is done with the value.
type escaper struct {
	signs   string
	replace *strings.Replacer
}

func newEscaper(signs string, oldnew ...string) escaper {
	return escaper{signs, strings.NewReplacer(oldnew...)}
}

func (e escaper) escape(value string) string {
	for i := range len(e.signs) {
		if strings.IndexByte(value, e.signs[i]) >= 0 {
			return e.replace.Replace(value)
		}
	}
	return value
}

var (
	keyEscaper   = newEscaper("%,", "%", "%25", ",", "%2C")
	keyUnescaper = strings.NewReplacer("%25", "%", "%2C", ",")
)

// JoinKey writes the values of a limit's key between commas. In a value, a comma is %2C and a percent sign is %25.
func JoinKey(values []string) string {
	var b strings.Builder
	for i, value := range values {
		value = keyEscaper.escape(value)
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
