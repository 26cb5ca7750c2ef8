package policy

import "time"

// Limits bound what a run may use. Zero grants nothing, Unlimited is no bound, and the meet takes
// the smaller value of each.
type Limits struct {
	// Elapsed time from start to end.
	Wall time.Duration `json:"wall"`
	// CPU time of all processes together.
	CPUTime time.Duration `json:"cpu_time"`
	// Thousandths of a CPU, at any moment.
	CPUs int64 `json:"cpus"`
	// Bytes, page cache and kernel memory included.
	Memory int64 `json:"memory"`
	// Processes and threads at one time.
	PIDs int64 `json:"pids"`
	// Open files of one process.
	OpenFiles int64 `json:"open_files"`
	// Bytes of stdout and stderr together.
	Output int64 `json:"output"`
	// Bytes that the shadow may hold.
	Workspace int64 `json:"workspace"`
	// Files that the shadow may hold.
	WorkspaceFiles int64 `json:"workspace_files"`
	// Bytes of the largest file written.
	FileSize int64 `json:"file_size"`
	// Bytes a second, from each disk.
	IORead int64 `json:"io_read"`
	// Bytes a second, to each disk.
	IOWrite int64 `json:"io_write"`
	// Bytes that a commit keeps of what it replaced, for a revert.
	Revert int64 `json:"revert"`
	// How long a commit keeps them.
	RevertTime time.Duration `json:"revert_time"`
}

var limitFields = []LimitField[Limits]{
	{"wall", Duration, "elapsed time from start to end",
		func(l *Limits) *int64 { return (*int64)(&l.Wall) }},
	{"cpu_time", Duration, "CPU time of all processes together",
		func(l *Limits) *int64 { return (*int64)(&l.CPUTime) }},
	{"cpus", Cores, "CPUs that may be used at one time", func(l *Limits) *int64 { return &l.CPUs }},
	{"memory", Bytes, "memory, including page cache and kernel memory",
		func(l *Limits) *int64 { return &l.Memory }},
	{"pids", Count, "processes and threads at one time", func(l *Limits) *int64 { return &l.PIDs }},
	{"open_files", Count, "open files of one process",
		func(l *Limits) *int64 { return &l.OpenFiles }},
	{"output", Bytes, "bytes of stdout and stderr together",
		func(l *Limits) *int64 { return &l.Output }},
	{"workspace", Bytes, "bytes that the shadow of the workspace may hold",
		func(l *Limits) *int64 { return &l.Workspace }},
	{"workspace_files", Count, "files that the shadow may hold",
		func(l *Limits) *int64 { return &l.WorkspaceFiles }},
	{"file_size", Bytes, "size of the largest file that may be written",
		func(l *Limits) *int64 { return &l.FileSize }},
	{"io_read", Bytes, "bytes read per second from one disk; unlimited if missing",
		func(l *Limits) *int64 { return &l.IORead }},
	{"io_write", Bytes, "bytes written per second to one disk; unlimited if missing",
		func(l *Limits) *int64 { return &l.IOWrite }},
	{"revert", Bytes, "bytes of replaced files that a commit keeps for a revert; 1 GiB if missing",
		func(l *Limits) *int64 { return &l.Revert }},
	{"revert_time", Duration,
		"how long a commit keeps replaced files for a revert; 168h if missing",
		func(l *Limits) *int64 { return (*int64)(&l.RevertTime) }},
}

// The default limits of what a commit keeps for a revert.
const (
	defaultRevert     = 1 << 30
	defaultRevertTime = 7 * 24 * time.Hour
)

// InForce returns the value that is enforced for the limit called name. The limits of a revert have
// a default if no layer sets one; byDefault reports whether it was used.
func (l Limits) InForce(name string) (n int64, byDefault bool) {
	n, _, _ = l.Get(name)
	if n != Unlimited {
		return n, false
	}
	switch name {
	case "revert":
		return defaultRevert, true
	case "revert_time":
		return int64(defaultRevertTime), true
	}
	return n, false
}

// OptionalLimits are the limits that a profile may leave out; a missing one bounds nothing. Not
// every host can enforce I/O rates, and the space kept for a revert is not granted to the tool.
func OptionalLimits() []string { return []string{"io_read", "io_write", "revert", "revert_time"} }

// TopLimits bounds nothing.
func TopLimits() Limits { return topLimits(limitFields) }

// Meet takes the smaller of each.
func (l Limits) Meet(m Limits) Limits { return meetLimits(limitFields, l, m) }

// LessEq reports whether no limit of l is larger than that of m.
func (l Limits) LessEq(m Limits) bool { return lessEqLimits(limitFields, l, m) }

// Normal returns l with negative limits, which no parser accepts, replaced by zero.
func (l Limits) Normal() Limits { return normalLimits(limitFields, l) }

func (l Limits) String() string { return limitsString(limitFields, l) }

// LimitNames returns the names of all limits, in the order in which they are shown.
func LimitNames() []string { return limitNames(limitFields) }

// Set parses value into the limit called name.
func (l *Limits) Set(name, value string) error { return setLimit(limitFields, l, name, value) }

// Put sets the limit called name to n in its unit. It reports whether the name is known.
func (l *Limits) Put(name string, n int64) bool { return putLimit(limitFields, l, name, n) }

// Get returns the limit called name and its unit. The bool is false if the name is unknown.
func (l Limits) Get(name string) (int64, Unit, bool) { return getLimit(limitFields, l, name) }

// FetchLimits bound the requests of a run, in the manner of Limits.
type FetchLimits struct {
	Requests   int64         `json:"requests"`
	BytesIn    int64         `json:"bytes_in"`
	BytesOut   int64         `json:"bytes_out"`
	Concurrent int64         `json:"concurrent"` // requests at one time
	Timeout    time.Duration `json:"timeout"`    // of one request
}

var fetchLimitFields = []LimitField[FetchLimits]{
	{"requests", Count, "requests of one run", func(l *FetchLimits) *int64 { return &l.Requests }},
	{"bytes_in", Bytes, "bytes received", func(l *FetchLimits) *int64 { return &l.BytesIn }},
	{"bytes_out", Bytes, "bytes sent", func(l *FetchLimits) *int64 { return &l.BytesOut }},
	{"concurrent", Count, "requests at one time",
		func(l *FetchLimits) *int64 { return &l.Concurrent }},
	{"timeout", Duration, "time for one request",
		func(l *FetchLimits) *int64 { return (*int64)(&l.Timeout) }},
}

// TopFetchLimits bounds nothing.
func TopFetchLimits() FetchLimits { return topLimits(fetchLimitFields) }

// Meet takes the smaller of each.
func (l FetchLimits) Meet(m FetchLimits) FetchLimits { return meetLimits(fetchLimitFields, l, m) }

// LessEq reports whether no limit of l is larger than that of m.
func (l FetchLimits) LessEq(m FetchLimits) bool { return lessEqLimits(fetchLimitFields, l, m) }

// Normal returns l with negative limits replaced by zero.
func (l FetchLimits) Normal() FetchLimits { return normalLimits(fetchLimitFields, l) }

func (l FetchLimits) String() string { return limitsString(fetchLimitFields, l) }

// FetchLimitNames returns the names of all fetch limits, in the order in which they are shown.
func FetchLimitNames() []string { return limitNames(fetchLimitFields) }

// Set parses value into the limit called name.
func (l *FetchLimits) Set(name, value string) error {
	return setLimit(fetchLimitFields, l, name, value)
}

// Put sets the limit called name to n in its unit. It reports whether the name is known.
func (l *FetchLimits) Put(name string, n int64) bool {
	return putLimit(fetchLimitFields, l, name, n)
}

// Get returns the limit called name and its unit. The bool is false if the name is unknown.
func (l FetchLimits) Get(name string) (int64, Unit, bool) {
	return getLimit(fetchLimitFields, l, name)
}
