// Package runners holds the messages between the host and the inside of a jail about one tool:
// which tool it is, how it is called, and how it ended. They are plain data in JSON, and all that
// the half of a runner that decides (on the host, pure) and the half that acts (inside) share.
package runners

// Kind is the kind of a tool.
type Kind string

// The kinds of tools.
const (
	// A WebAssembly module that speaks WASI preview 1.
	KindWASI Kind = "wasi"
	// A program of the host.
	KindNative Kind = "native"
	// A script whose every command is a WASI module.
	KindShell Kind = "shell"
)

// Layout says how a WASI module finds the directories that it was granted.
type Layout string

const (
	// LayoutRooted is one preopened directory "/", a read-only tree that leads to
	// the mounts. It is for modules that start in the directory that PWD names.
	LayoutRooted Layout = "rooted"
	// LayoutPreopens is one preopened directory for each mount, under its own path, and last "."
	// for the working directory. It is for modules whose C library knows no working directory.
	LayoutPreopens Layout = "preopens"
	// LayoutWorking is one preopened directory "/", which is the working directory: no other is in
	// the tool's view. It is for modules made for an engine that maps one directory to the root.
	LayoutWorking Layout = "working"
)

// Mount is a directory that the tool sees.
type Mount struct {
	// Inside the jail, absolute and clean; the guest sees the same path.
	Path string `json:"path"`
	// Source is the directory in the jail where it is not at Path.
	Source string `json:"source,omitempty"`
	// false: nothing below it can be changed
	Write bool `json:"write,omitempty"`
	// Hide holds patterns, relative to Path, of names that do not exist for the guest.
	Hide []string `json:"hide,omitempty"`
	// Whole includes what is mounted below Path, as in a container, whose root is one mount.
	Whole bool `json:"whole,omitempty"`
}

// ModuleLimits bounds a module before it is compiled. Zero fields mean the
// defaults of the wasi package.
type ModuleLimits struct {
	// Size of the module file.
	Bytes     int64 `json:"bytes,omitempty"`
	Functions int   `json:"functions,omitempty"` // functions that it defines
	// Interruptible asks for machine code that looks at every turn of a loop whether it is to stop.
	// That costs four to six times the time of plain code. A shared engine needs it: nothing else
	// ends one instance of a module without its process.
	Interruptible bool `json:"interruptible,omitempty"`
}

// Invocation is one call of a tool.
type Invocation struct {
	// args[0] is the name of the command
	Args Texts `json:"args"`
	// NAME=VALUE; the tool has no other environment
	Env    Texts   `json:"env"`
	Cwd    string  `json:"cwd,omitempty"`
	Mounts []Mount `json:"mounts,omitempty"`
	Layout Layout  `json:"layout,omitempty"`
	// Devices are names in /dev that a WASI tool sees, such as "null".
	Devices []string `json:"devices,omitempty"`

	// Bytes of linear memory; 0 means 4 GiB, all that WebAssembly can address.
	MemoryLimit int64 `json:"memory_limit,omitempty"`
	// Descriptors of the tool, with stdio; 0 means 256.
	OpenFiles int          `json:"open_files,omitempty"`
	Module    ModuleLimits `json:"module,omitzero"`
	// CacheDir is the directory inside the jail that holds the compiled form of
	// the module. Empty compiles in memory.
	CacheDir string `json:"cache_dir,omitempty"`
}

// Trap says why the engine ended a module.
type Trap struct {
	// One of the Trap constants of the wasi package.
	Class    string `json:"class"`
	Sentence string `json:"sentence"` // for people
}

// Denial is something that was refused.
type Denial struct {
	Layer string `json:"layer"`
	What  string `json:"what"`
	Rule  string `json:"rule"`
	Count int    `json:"count"` // how often
	// Probe says that the refused call is one that programs try and do without.
	Probe bool `json:"probe,omitempty"`
}

// MemoryRefused is a request for linear memory beyond the limit.
type MemoryRefused struct {
	Limit int64 `json:"limit"` // bytes
	// bytes, the largest that was asked for
	Wanted int64 `json:"wanted"`
}

// Usage is the resource usage of a run.
type Usage struct {
	// The time to read the compiled module, or to compile it.
	LoadNanos  int64 `json:"load_ns"`
	RunNanos   int64 `json:"run_ns"`
	MemoryPeak int64 `json:"memory_peak"` // bytes of linear memory
	// most descriptors at one time
	OpenPeak    int   `json:"open_peak"`
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// CPUNanos is the CPU time of the thread that ran the module; only a shared engine measures it.
	CPUNanos int64 `json:"cpu_ns,omitempty"`
}

// Why a shared engine stopped an invocation.
const (
	StoppedCancelled = "cancelled"
	StoppedCPUTime   = "cpu_time"
)

// MaxKept bounds the environment and the working directory that a shell leaves, in bytes.
const MaxKept = 64 << 10

// Kept is the environment and the working directory of a shell at its end.
type Kept struct {
	// NAME=VALUE.
	Env Texts  `json:"env,omitempty"`
	Cwd string `json:"cwd,omitempty"`
	// TooLarge says that they had more than MaxKept bytes; nothing else is set.
	TooLarge bool `json:"too_large,omitempty"`
}

// Report is how a run ended.
type Report struct {
	ExitCode int `json:"exit_code"`
	// The signal that ended a host program, or 0. ExitCode is then 128 plus the signal.
	Signal int `json:"signal,omitempty"`
	// LeftProcesses is how many processes a program of the host left behind, which were killed.
	LeftProcesses int64          `json:"left_processes,omitempty"`
	Trap          *Trap          `json:"trap,omitempty"`
	Denied        []Denial       `json:"denied,omitempty"`
	MemoryRefused *MemoryRefused `json:"memory_refused,omitempty"`
	LimitsMet     []LimitMet     `json:"limits_met,omitempty"`
	Usage         Usage          `json:"usage"`
	// Stopped says why a shared engine stopped the module before its end; empty if it ended by
	// itself.
	Stopped string `json:"stopped,omitempty"`
	// Kept is what a shell leaves to later invocations of its session, if the order asks for it.
	Kept *Kept `json:"kept,omitempty"`
	// The commands that a script ran, sorted by name.
	Executed []Executed `json:"executed,omitempty"`
}
