package wallclock

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // where the system has none

	"github.com/waterclock/waterclock/internal/nearest"
)

// zoneNames are the zones of Go's database, one a line. Others that the system has are known, too.
//
//go:embed zones.txt
var zoneNames string

var zoneList = sync.OnceValue(func() []string { return strings.Fields(zoneNames) })

// loaded are the zones that were asked for, by their names. There are some hundreds.
var loaded sync.Map

// Zone returns a zone by its name, such as Europe/Paris or UTC. The error names the nearest one.
func Zone(name string) (*time.Location, error) {
	if zone, known := loaded.Load(name); known {
		return zone.(*time.Location), nil
	}
	if name == "" || name == "Local" {
		return nil, fmt.Errorf("zone %q: want a name such as Europe/Paris or UTC", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("there is no zone %q; did you mean %s?", name, likeliest(name))
	}
	loaded.Store(name, zone)
	return zone, nil
}

// likeliest returns the name of a zone that is most like a text: as a whole, or in its last part.
func likeliest(text string) string {
	text = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(text), " ", "_"))
	best, least := "", 1<<30
	for _, name := range zoneList() {
		like := strings.ToLower(name)
		d := 2 * nearest.Distance(text, like)
		if city := like[strings.LastIndexByte(like, '/')+1:]; city != like {
			d = min(d, 2*nearest.Distance(text, city)+1, 2*nearest.Distance(text[strings.LastIndexByte(text, '/')+1:], city)+2)
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

// Names returns the names of all zones.
func Names() []string { return slices.Clone(zoneList()) }

// Fingerprint tells the data of zones apart by which local times are computed: it differs where an offset of some zone from 2026 to
// 2040 does. The data are those of the system, or Go's where it has none. The first call takes some ten milliseconds.
func Fingerprint() string { return fingerprint() }

var fingerprint = sync.OnceValue(func() string { return fingerprintOf(time.LoadLocation) })

func fingerprintOf(load func(name string) (*time.Location, error)) string {
	from, to := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	sum := fnv.New64a()
	for _, name := range zoneList() {
		zone, err := load(name)
		if err != nil {
			continue
		}
		fmt.Fprintln(sum, name)
		for t := from; t < to; {
			offset, end := look(zone, t)
			fmt.Fprintln(sum, offset, end)
			t = end
		}
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}
