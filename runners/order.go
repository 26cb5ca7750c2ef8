package runners

// Order is what the daemon hands to jail-init, with the module as a descriptor: run a tool, or compile a module for later runs.
type Order struct {
	// Compile asks for the compiled form of the module on standard output, in place of a run.
	Compile    bool       `json:"compile,omitempty"`
	Invocation Invocation `json:"invocation"`
	// Prepare asks for nothing but to load the module, for an order that is to come. It says nothing of a run.
	Prepare bool `json:"prepare,omitempty"`
	// Prepared says that the module is the one of the order before, with Prepare: the host has compared their digests.
	Prepared bool `json:"prepared,omitempty"`
	// Script is run in place of one tool. The invocation is then that of each of its commands, less what the script says itself, and as
	// many modules come with the order as its commands name.
	Script *Script `json:"script,omitempty"`
	// Native is a program of the host, which is run in place of a module. Of the invocation it takes arguments, environment and directory.
	Native *Native `json:"native,omitempty"`
	// Fetch says that the last descriptor is the door to the fetch proxy.
	Fetch bool `json:"fetch,omitempty"`
}

// Native says which program, and on what.
type Native struct {
	Program string `json:"program"` // absolute path in the jail
	// Terminal is the size of a terminal of the jail's own to run it on; nil: on the streams as they are.
	Terminal *Terminal `json:"terminal,omitempty"`
	// Relay is the port on the jail's own loopback that leads to the fetch proxy; 0: none.
	Relay int `json:"relay,omitempty"`
}

// Terminal is the size of a terminal, in characters.
type Terminal struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// Script is a shell script, and the commands that it may run. The host has read and checked it before; the inside takes nothing that is
// not here.
type Script struct {
	Name   string `json:"name"` // $0, and in messages
	Text   string `json:"text"`
	Params Texts  `json:"params,omitempty"` // $1 and on
	// Commands are those that policy allows, by the name that the script calls them by.
	Commands map[string]Command `json:"commands"`
	// Refused are those that it does not, each with the rule.
	Refused map[string]string `json:"refused,omitempty"`
	// Concurrent bounds the tools that run at one time.
	Concurrent int `json:"concurrent"`
}

// Command says which of the order's modules a command is.
type Command struct {
	Module int    `json:"module"` // its place among the descriptors, and its directory below the cache directory
	Name   string `json:"name"`   // args[0], as the module knows itself
	Layout Layout `json:"layout,omitempty"`
	// Scope says as whom the command asks the fetch proxy: 0 as the script, NoFetch not at all, else as the bundle that the proxy has in that place.
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

// Answer is what jail-init says at the end, before it exits. It is said from inside: nothing that bounds the run depends on it.
type Answer struct {
	Report *Report `json:"report,omitempty"`
	// Failure says in one sentence why there is no report.
	Failure string `json:"failure,omitempty"`
	// Layer is set when jail-init could not restrict itself, so that the tool has not run: which of its layers it was.
	Layer string `json:"layer,omitempty"`
}
