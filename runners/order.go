package runners

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail"
)

// Order is the daemon's order to jail-init, with the module as a descriptor: run a tool, or compile
// a module for later runs.
type Order struct {
	// Compile asks for the compiled form of the module on standard output, in place of a run.
	Compile    bool       `json:"compile,omitempty"`
	Invocation Invocation `json:"invocation"`
	// Prepare only loads the module, for an order that follows. Fields about a run are not set.
	Prepare bool `json:"prepare,omitempty"`
	// Prepared says that the module is the one of the previous order, with Prepare. The host has
	// compared the digests.
	Prepared bool `json:"prepared,omitempty"`
	// Script is run in place of one tool. Its commands get the invocation, except what the script
	// sets itself. The order comes with the modules that the commands name.
	Script *Script `json:"script,omitempty"`
	// Native is a host program to run in place of a module. It uses only the arguments, environment
	// and directory of the invocation.
	Native *Native `json:"native,omitempty"`
	// Agent says that the module or program is the guest of an agent. Standard input and output then
	// carry the frames of package agent, and the guest has only the standard error.
	Agent *Agent `json:"agent,omitempty"`
	// Files are for a tool that is a module (CheckFiles), by their names.
	Files map[string][]byte `json:"files,omitempty"`
	// Fetch: the last descriptor is the socket to the fetch proxy.
	Fetch bool `json:"fetch,omitempty"`
	// Joined gives the tool its standard output as its standard error, too.
	Joined bool `json:"joined,omitempty"`
	// NoInput gives a program of the host /dev/null as its standard input, in place of the
	// descriptor. Programs such as rg read a pipe where they would search the directory.
	NoInput bool `json:"no_input,omitempty"`
	// Serve makes jail-init the shared engine of a session: instead of one run, it executes the
	// Calls that follow until the control socket is closed.
	Serve bool `json:"serve,omitempty"`
	// Passed is the number of descriptors that jail-init has had since its start (control.InitPassed)
	// in place of those that come with the order. The last one of an order that fetches carries
	// streams, and is no control socket.
	Passed int `json:"passed,omitempty"`
}

// Call is the daemon's message to a shared engine: an invocation to carry out, or one to cancel. An
// invocation comes with its module, standard input, output and error, and last, if it fetches, the
// socket to its fetch proxy.
type Call struct {
	// ID is unique among the calls of an engine.
	ID uint64 `json:"id"`
	// Cancel ends the invocation of that ID. Nothing else is set.
	Cancel     bool       `json:"cancel,omitempty"`
	Invocation Invocation `json:"invocation,omitzero"`
	Fetch      bool       `json:"fetch,omitempty"`
	// Joined gives the tool its standard output as its standard error, too.
	Joined bool `json:"joined,omitempty"`
	// CPUNanos is the limit of CPU time; 0 means none.
	CPUNanos int64 `json:"cpu_ns,omitempty"`
}

// Reply is a shared engine's message about the end of a call. As an Answer it comes from inside the
// jail.
type Reply struct {
	ID     uint64 `json:"id"`
	Answer Answer `json:"answer"`
}

// Agent holds the parameters of the host of an agent.
type Agent struct {
	// ID is agent:USER:NAME.
	ID string `json:"id"`
	// Bindings are the names of the bindings that the guest may call.
	Bindings []string `json:"bindings"`
	// Imports are the bindings that its module may import: Bindings, or for a facet all.
	Imports []string `json:"imports"`
	// Dir is the directory of the database in the jail, which has at most Size bytes.
	Dir  string `json:"dir"`
	Size int64  `json:"size"`
	// DeadlineNanos is how long the guest may work on an event.
	DeadlineNanos int64 `json:"deadline_ns"`
	// Once: the guest is a program that runs once, without events and without a database.
	Once bool `json:"once,omitempty"`
	// Listen is the address on the jail's loopback at which a program of the host calls its
	// bindings; zero: none.
	Listen netip.AddrPort `json:"listen,omitzero"`
	// Landlock is the domain of a program of the host, which is that of process 1 without the
	// directory of the database.
	Landlock *jail.Landlock `json:"landlock,omitempty"`
}

// SignalTerminate is SIGPWR, by which the host asks process 1 of a native jail to send SIGTERM to
// all other processes. Programs do not send it to their parent by accident.
const SignalTerminate = 30

// Native names the program and its terminal.
type Native struct {
	// Absolute path in the jail.
	Program string `json:"program"`
	// Terminal is the size of a terminal of the jail's own to run it on; nil: on the streams as
	// they are.
	Terminal *Terminal `json:"terminal,omitempty"`
	// Keep says that the program is a shell that reports its environment at its end.
	Keep bool `json:"keep,omitempty"`
	// Relay is the address on the jail's loopback that leads to the fetch proxy; zero: none.
	Relay netip.AddrPort `json:"relay,omitzero"`
}

// Terminal asks for a terminal of the jail's own, of this size in characters, for a program of the
// host.
type Terminal struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// Script is a shell script, and the commands that it may run. The host has read and checked it
// before; the inside takes nothing that is not here.
type Script struct {
	Name   string `json:"name"` // $0, and in messages
	Text   string `json:"text"`
	Params Texts  `json:"params,omitempty"` // $1 and on
	// Commands are those that policy allows, by the name that the script calls them by.
	Commands map[string]Command `json:"commands"`
	// Refused maps the commands that policy refuses to the rule.
	Refused map[string]string `json:"refused,omitempty"`
	// Concurrent bounds the tools that run at one time.
	Concurrent int `json:"concurrent"`
}

// Command names the module of a command.
type Command struct {
	// The index of the module's descriptor, and the name of its directory below the cache
	// directory.
	Module int `json:"module"`
	// args[0], as the module knows itself
	Name   string `json:"name"`
	Layout Layout `json:"layout,omitempty"`
	// Scope is the scope of the command's fetches: 0 is the script's, NoFetch none, else that of
	// the bundle at this index.
	Scope int `json:"scope,omitempty"`
	// Unseen are the mounts of the invocation, by their paths, that the command does not see.
	Unseen []string `json:"unseen,omitempty"`
}

// NoFetch is the scope of a command that fetches nothing.
const NoFetch = -1

// Executed counts how often a command of a script was run.
type Executed struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// Answer is jail-init's message before it exits. It comes from inside the jail: nothing that bounds
// the run depends on it.
type Answer struct {
	Report *Report `json:"report,omitempty"`
	// Failure says in one sentence why there is no report.
	Failure string `json:"failure,omitempty"`
	// Layer is set when jail-init could not restrict itself, so that the tool has not run: which of
	// its layers it was.
	Layer string `json:"layer,omitempty"`
	// NoCwd is the errno why the tool could not start in its working directory, so that it has not
	// run; 0 if it could.
	NoCwd int `json:"no_cwd,omitempty"`
	// NoExec is the errno why the kernel did not execute the program, so that it has not run; 0 if
	// it did.
	NoExec int `json:"no_exec,omitempty"`
}

// StartError is returned by a runner whose tool could not begin in its working directory, or whose
// program the kernel did not execute.
type StartError struct {
	Op    string // OpCwd or OpExec
	Path  string
	Errno int   // of Err
	Err   error // of the system call
}

// Steps that fail with a StartError.
const (
	OpCwd  = "working directory"
	OpExec = "execute"
)

func (e *StartError) Error() string { return e.Op + " " + e.Path + ": " + e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// FailureAnswer returns the answer of a run that failed with err before its tool ended.
func FailureAnswer(report *Report, err error) Answer {
	a := Answer{Report: report, Failure: err.Error()}
	if e, ok := errors.AsType[*StartError](err); ok && e.Op == OpCwd {
		a.NoCwd = e.Errno
	} else if ok {
		a.NoExec = e.Errno
	}
	return a
}

// Texts is a list of byte strings, such as arguments. In JSON each is a string where it is valid
// UTF-8, and otherwise {"base64": "…"}, because JSON would silently replace the bytes that are not.
type Texts []string

// rawText is the JSON form of bytes that are not UTF-8.
type rawText struct {
	Base64 *[]byte `json:"base64"`
}

// MarshalJSON writes the list.
func (t Texts) MarshalJSON() ([]byte, error) {
	out := make([]any, len(t))
	for i, s := range t {
		if utf8.ValidString(s) {
			out[i] = s
			continue
		}
		b := []byte(s)
		out[i] = rawText{&b}
	}
	return json.Marshal(out)
}

var errText = errors.New(`want a string or {"base64": "…"}`)

// UnmarshalJSON parses the output of MarshalJSON.
func (t *Texts) UnmarshalJSON(data []byte) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	if raw == nil {
		*t = nil
		return nil
	}
	out := make(Texts, len(raw))
	for i, r := range raw {
		var s string
		if json.Unmarshal(r, &s) == nil && string(r) != "null" {
			out[i] = s
			continue
		}
		var b rawText
		if err := json.Unmarshal(r, &b); err != nil || b.Base64 == nil {
			return fmt.Errorf("text %d: %w", i, errText)
		}
		out[i] = string(*b.Base64)
	}
	*t = out
	return nil
}
