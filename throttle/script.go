package throttle

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/base.lua
var baseLua string

//go:embed lua/costs.lua
var costsLua string

//go:embed lua/logs.lua
var logsLua string

//go:embed lua/state.lua
var stateLua string

//go:embed lua/kinds.lua
var kindsLua string

//go:embed lua/ramp.lua
var rampLua string

//go:embed lua/warmup.lua
var warmupLua string

//go:embed lua/rules.lua
var rulesLua string

//go:embed lua/turns.lua
var turnsLua string

//go:embed lua/decide.lua
var decideLua string

//go:embed lua/ask.lua
var askLua string

//go:embed lua/refund.lua
var refundLua string

// script returns source as a Redis script that can use the rules, see lua/base.lua.
func script(source string) *redis.Script {
	return redis.NewScript(baseLua + costsLua + logsLua + stateLua + kindsLua + rampLua + warmupLua + rulesLua + source)
}
