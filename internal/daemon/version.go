package daemon

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is what `version` prints: the module's version where it was built with one, else the commit.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

// VersionLine is Version with the toolchain and platform.
func VersionLine(name string) string {
	return fmt.Sprintf("%s %s (%s %s/%s)", name, Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
