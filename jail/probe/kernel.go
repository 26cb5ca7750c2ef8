package probe

import (
	"fmt"
	"os"
	"strings"
)

// leastMajor and leastMinor are the oldest supported kernel. Linux 5.19 added overlays of id-mapped
// layers, which keep the owners of files in a shadow.
const leastMajor, leastMinor = 5, 19

// Kernel checks that the running kernel is Linux 5.19 or newer, by its version alone. A version of
// another form is Unknown.
func Kernel() Finding {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return unknown("kernel", "%v", err)
	}
	return kernel(strings.TrimSpace(string(text)))
}

func kernel(release string) Finding {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return unknown("kernel", "version %q has another form", release)
	}
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return no("kernel", fmt.Sprintf("boot Linux %d.%d or newer", leastMajor, leastMinor),
			"Linux %s; shadows need %d.%d", release, leastMajor, leastMinor)
	}
	return yes("kernel", "Linux %s", release)
}
