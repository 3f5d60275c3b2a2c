package throttle

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/state.lua
var stateLua string

//go:embed lua/kinds.lua
var kindsLua string

//go:embed lua/rules.lua
var rulesLua string

//go:embed lua/decide.lua
var decideLua string

//go:embed lua/refund.lua
var refundLua string

// script returns source as a Redis script that can use the rules: lua/state.lua,
// lua/kinds.lua and lua/rules.lua stand before it.
func script(source string) *redis.Script {
	return redis.NewScript(stateLua + kindsLua + rulesLua + source)
}
