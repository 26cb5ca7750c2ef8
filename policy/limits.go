package policy

import "time"

// Limits bound what a run may use. Zero is nothing at all, Unlimited is no bound; the
// meet is the smaller of each.
type Limits struct {
	// From start to end, by the clock on the wall.
	Wall    time.Duration `json:"wall"`
	CPUTime time.Duration `json:"cpu_time"` // of all processes together
	// thousandths of a CPU, at any moment
	CPUs int64 `json:"cpus"`
	// Bytes, page cache and kernel memory included.
	Memory    int64 `json:"memory"`
	PIDs      int64 `json:"pids"` // processes and threads
	OpenFiles int64 `json:"open_files"`
	// Bytes of stdout and stderr together.
	Output int64 `json:"output"`
	// Bytes that the shadow may hold.
	Workspace int64 `json:"workspace"`
	// files that the shadow may hold
	WorkspaceFiles int64 `json:"workspace_files"`
	// Bytes of the largest file written.
	FileSize int64 `json:"file_size"`
	// Bytes a second, from each disk.
	IORead int64 `json:"io_read"`
	// Bytes a second, to each disk.
	IOWrite int64 `json:"io_write"`
	// Bytes that a commit keeps of what it replaced, for a revert.
	Revert int64 `json:"revert"`
	// For which it keeps them.
	RevertTime time.Duration `json:"revert_time"`
}

var limitFields = []limitField[Limits]{
	{"wall", Duration, "time from start to end",
		func(l *Limits) *int64 { return (*int64)(&l.Wall) }},
	{"cpu_time", Duration, "time on a CPU, of all processes together",
		func(l *Limits) *int64 { return (*int64)(&l.CPUTime) }},
	{"cpus", Cores, "CPUs at any moment", func(l *Limits) *int64 { return &l.CPUs }},
	{"memory", Bytes, "memory, with page cache and kernel memory",
		func(l *Limits) *int64 { return &l.Memory }},
	{"pids", Count, "processes and threads", func(l *Limits) *int64 { return &l.PIDs }},
	{"open_files", Count, "open files of each process",
		func(l *Limits) *int64 { return &l.OpenFiles }},
	{"output", Bytes, "stdout and stderr together", func(l *Limits) *int64 { return &l.Output }},
	{"workspace", Bytes, "what the shadow of the workspace may hold",
		func(l *Limits) *int64 { return &l.Workspace }},
	{"workspace_files", Count, "files that the shadow may hold",
		func(l *Limits) *int64 { return &l.WorkspaceFiles }},
	{"file_size", Bytes, "the largest file written", func(l *Limits) *int64 { return &l.FileSize }},
	{"io_read", Bytes, "read from each disk, a second; a policy may leave it out",
		func(l *Limits) *int64 { return &l.IORead }},
	{"io_write", Bytes, "written to each disk, a second; a policy may leave it out",
		func(l *Limits) *int64 { return &l.IOWrite }},
	{"revert", Bytes, "what a commit keeps of what it replaced, for a revert; left out, 1 GiB",
		func(l *Limits) *int64 { return &l.Revert }},
	{"revert_time", Duration, "for how long it keeps that; left out, 168h",
		func(l *Limits) *int64 { return (*int64)(&l.RevertTime) }},
}

// What a commit keeps for a revert where no layer bounds it.
const (
	defaultRevert     = 1 << 30
	defaultRevertTime = 7 * 24 * time.Hour
)

// InForce returns the limit called name as it holds: what a commit keeps has a bound of its own
// where no layer sets one.
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

// OptionalLimits are those that a profile may leave out without granting nothing: not every host
// can hold them, and what is kept for a revert is nothing that a tool gets. Left out, they bound
// nothing.
func OptionalLimits() []string { return []string{"io_read", "io_write", "revert", "revert_time"} }

// TopLimits bounds nothing.
func TopLimits() Limits { return topLimits(limitFields) }

// Meet takes the smaller of each.
func (l Limits) Meet(m Limits) Limits { return meetLimits(limitFields, l, m) }

// LessEq reports whether no limit of l is larger than that of m.
func (l Limits) LessEq(m Limits) bool { return lessEqLimits(limitFields, l, m) }

// Normal takes a negative limit, which no parser lets through, for none at all.
func (l Limits) Normal() Limits { return normalLimits(limitFields, l) }

func (l Limits) String() string { return limitsString(limitFields, l) }

// LimitNames returns the names of all limits, in the order in which they are shown.
func LimitNames() []string { return limitNames(limitFields) }

// Set reads value into the limit called name.
func (l *Limits) Set(name, value string) error { return setLimit(limitFields, l, name, value) }

// Put sets the limit called name to a count in its unit, such as Unlimited, and reports
// whether there is one.
func (l *Limits) Put(name string, n int64) bool { return putLimit(limitFields, l, name, n) }

// Get returns the limit called name: its count, its unit, and whether there is one.
func (l Limits) Get(name string) (int64, Unit, bool) { return getLimit(limitFields, l, name) }

// FetchLimits bound the requests of a run, in the manner of Limits.
type FetchLimits struct {
	Requests   int64         `json:"requests"`
	BytesIn    int64         `json:"bytes_in"`
	BytesOut   int64         `json:"bytes_out"`
	Concurrent int64         `json:"concurrent"` // requests at one time
	Timeout    time.Duration `json:"timeout"`    // of one request
}

var fetchLimitFields = []limitField[FetchLimits]{
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

// Normal takes a negative limit for none at all.
func (l FetchLimits) Normal() FetchLimits { return normalLimits(fetchLimitFields, l) }

func (l FetchLimits) String() string { return limitsString(fetchLimitFields, l) }

// FetchLimitNames returns the names of all fetch limits, in the order in which they are shown.
func FetchLimitNames() []string { return limitNames(fetchLimitFields) }

// Set reads value into the limit called name.
func (l *FetchLimits) Set(name, value string) error {
	return setLimit(fetchLimitFields, l, name, value)
}

// Put sets the limit called name to a count in its unit, and reports whether there is one.
func (l *FetchLimits) Put(name string, n int64) bool {
	return putLimit(fetchLimitFields, l, name, n)
}

// Get returns the limit called name: its count, its unit, and whether there is one.
func (l FetchLimits) Get(name string) (int64, Unit, bool) {
	return getLimit(fetchLimitFields, l, name)
}
