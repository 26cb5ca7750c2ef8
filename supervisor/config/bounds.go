package config

import (
	"runtime"
	"time"
)

// Bounds say how much runs at one time, and how much may wait for that.
type Bounds struct {
	Runs int // at one time
	// Memory is the sum of the memory limits of the runs that are admitted, in bytes.
	Memory int64
	// Waiting is how many runs may wait for admission. One more is refused as busy.
	Waiting int
	// Wait is how long a run may wait for admission.
	Wait time.Duration
	// Warm is how many jails may be prewarmed; 0: none.
	Warm int

	// Connections is how many connections clients may have open.
	Connections int
	// Compile is how many times the usual time a module may take to compile; 0 is 1.
	Compile int
	// Cache is how many bytes of compiled modules are kept; 0 is 4 GiB.
	Cache int64
	// Sessions is how many sessions one user may have open; 0 is UserSessions.
	Sessions int
}

// Sessions that are open at one time.
const (
	// MostSessions are those of all users together.
	MostSessions = 256
	// UserSessions are those of one user, where the settings say nothing.
	UserSessions = 64
)

// DefaultBounds returns the bounds for a host with so many bytes of memory and a daemon with so
// many descriptors. Limits of memory are upper bounds that few runs come near to, and the kernel
// holds each: so four times the host's memory may be promised.
func DefaultBounds(memory int64, descriptors uint64) Bounds {
	const (
		perRun = 32 // descriptors of the daemon
		// descriptors for the daemon itself and for clients that it turns away
		own = 48
	)
	connections := min(max(descriptors/8, 16), 4096)
	runs := int(min(max((max(descriptors, own+connections)-own-connections)/perRun, 1), 1024))
	return Bounds{Runs: runs, Memory: max(memory, 1<<30) * 4, Waiting: min(1024, runs*4),
		Wait:        30 * time.Second,
		Warm:        int(min(int64(runtime.NumCPU())*4, memory/perWarm, int64(runs/2), maxWarm)),
		Connections: int(connections)}
}

// Up to four jails are prewarmed for each processor, if the host has a gibibyte for each: a jail
// takes some hundredths of that.
const (
	perWarm = 1 << 30
	maxWarm = 64
)
