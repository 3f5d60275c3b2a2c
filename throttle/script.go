package throttle

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/rules.lua
var rulesLua string

//go:embed lua/decide.lua
var decideLua string

// NewScript returns source as a Redis script that can use the rules: the prelude
// (lua/rules.lua) stands before it. It is how package queue decides by the same rules.
func NewScript(source string) *redis.Script {
	return redis.NewScript(rulesLua + source)
}
