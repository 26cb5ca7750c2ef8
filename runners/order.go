package runners

// Order is what the daemon hands to jail-init, with the module as a descriptor: run a tool, or compile a module for later runs.
type Order struct {
	// Compile asks for the compiled form of the module on standard output, in place of a run.
	Compile    bool       `json:"compile,omitempty"`
	Invocation Invocation `json:"invocation"`
}

// Answer is what jail-init says at the end, before it exits. It is said from inside: nothing that bounds the run depends on it.
type Answer struct {
	Report *Report `json:"report,omitempty"`
	// Failure says in one sentence why there is no report.
	Failure string `json:"failure,omitempty"`
}
