package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// bound is how long anything here may take before it counts as hanging. Nothing waits for as long
// as that unless it fails, so it leaves room for a machine that is busy with twenty other things.
var bound = 3 * time.Minute * time.Duration(min(slower(), 2))

// slower is how many times as long compiling may take: the machines of cmd/dev/vmtest have an
// emulated processor.
func slower() int {
	if os.Getenv("JAIL_VM_BUILT") != "" {
		return 30
	}
	return 1
}

// compileSlowly lets what keeps its state in dir take its time to compile, where that is needed.
func compileSlowly(dir string) error {
	return os.WriteFile(filepath.Join(dir, "jaild.toml"),
		fmt.Appendf(nil, "[compile]\ntimes = %d\n", slower()), 0o600)
}
