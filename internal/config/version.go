package config

import "runtime/debug"

// Version returns the version that the binary was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " " + s.Value[:min(12, len(s.Value))]
		}
	}
	return text + " " + info.GoVersion
}
