// Package runners holds what the host and the inside of a jail tell each other
// about one tool: which tool it is, how it is called, and how it ended. It is
// plain data that travels as JSON, so that the half of a runner that decides (on
// the host, pure) and the half that acts (inside) share nothing else.
package runners

// Kind says how a tool is started.
type Kind string

// The kinds of tools.
const (
	KindWASI   Kind = "wasi"   // a WebAssembly module that speaks WASI preview 1
	KindNative Kind = "native" // a program of the host
	KindShell  Kind = "shell"  // a script whose every command is a WASI module
)

// Layout says how a WASI module finds the directories that it was granted.
type Layout string

const (
	// LayoutRooted is one preopened directory "/", a read-only tree that leads to
	// the mounts. It is for modules that start in the directory that PWD names.
	LayoutRooted Layout = "rooted"
	// LayoutPreopens is one preopened directory for each mount, under its own
	// path, and last "." for the working directory. It is for modules whose C
	// library knows no working directory.
	LayoutPreopens Layout = "preopens"
	// LayoutWorking is one preopened directory "/", which is the working
	// directory: no other is in the tool's view. It is for modules that were made
	// for an engine that is told "this directory is your root".
	LayoutWorking Layout = "working"
)

// Tool is one command that can be run.
type Tool struct {
	Kind    Kind   `json:"kind"`
	Bundle  string `json:"bundle,omitempty"`  // the bundle it came from; empty for a module named by path
	Command string `json:"command"`           // the command, which is also args[0]
	Digest  string `json:"digest,omitempty"`  // sha256 of the module, in hexadecimal
	Layout  Layout `json:"layout,omitempty"`  // for WASI; empty lets the module say
	Program string `json:"program,omitempty"` // for native: absolute path
}

// Mount is a directory that the tool sees.
type Mount struct {
	Path string `json:"path"` // inside the jail, absolute and clean; the guest sees the same path
	// Source is the directory in the jail where it is not at Path.
	Source string `json:"source,omitempty"`
	Write  bool   `json:"write,omitempty"` // false: nothing below it can be changed
	// Hide holds patterns, relative to Path, of names that do not exist for the guest.
	Hide []string `json:"hide,omitempty"`
}

// ModuleLimits bounds a module before it is compiled. Zero fields mean the
// defaults of the wasi package.
type ModuleLimits struct {
	Bytes     int64 `json:"bytes,omitempty"`     // size of the module file
	Functions int   `json:"functions,omitempty"` // functions that it defines
}

// Invocation is one call of a tool.
type Invocation struct {
	Args   Texts   `json:"args"` // args[0] is the name of the command
	Env    Texts   `json:"env"`  // NAME=VALUE; the tool has no other environment
	Cwd    string  `json:"cwd,omitempty"`
	Mounts []Mount `json:"mounts,omitempty"`
	Layout Layout  `json:"layout,omitempty"`

	MemoryLimit int64        `json:"memory_limit,omitempty"` // bytes of linear memory; 0 means 4 GiB, all that WebAssembly can address
	OpenFiles   int          `json:"open_files,omitempty"`   // descriptors of the tool, with stdio; 0 means 256
	Module      ModuleLimits `json:"module,omitzero"`
	// CacheDir is the directory inside the jail that holds the compiled form of
	// the module. Empty compiles in memory.
	CacheDir string `json:"cache_dir,omitempty"`
}

// Trap says why a module was ended by the engine rather than by itself.
type Trap struct {
	Class    string `json:"class"`    // one of the Trap constants of the wasi package
	Sentence string `json:"sentence"` // for people
}

// Denial is something that was refused.
type Denial struct {
	Layer string `json:"layer"`
	What  string `json:"what"`
	Rule  string `json:"rule"`
	Count int    `json:"count"` // how often
}

// MemoryRefused is a request for linear memory beyond the limit.
type MemoryRefused struct {
	Limit  int64 `json:"limit"`  // bytes
	Wanted int64 `json:"wanted"` // bytes, the largest that was asked for
}

// Usage is what a run used.
type Usage struct {
	LoadNanos   int64 `json:"load_ns"` // reading the compiled module, or compiling it
	RunNanos    int64 `json:"run_ns"`
	MemoryPeak  int64 `json:"memory_peak"` // bytes of linear memory
	OpenPeak    int   `json:"open_peak"`   // most descriptors at one time
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
}

// Report is how a run ended.
type Report struct {
	ExitCode      int            `json:"exit_code"`
	Signal        int            `json:"signal,omitempty"` // that ended a program of the host; ExitCode is then 128 and its number
	Trap          *Trap          `json:"trap,omitempty"`
	Denied        []Denial       `json:"denied,omitempty"`
	MemoryRefused *MemoryRefused `json:"memory_refused,omitempty"`
	LimitsMet     []LimitMet     `json:"limits_met,omitempty"`
	Usage         Usage          `json:"usage"`
	Executed      []Executed     `json:"executed,omitempty"` // by a script, sorted by name
}
