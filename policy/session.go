package policy

// EngineRule is which process runs the WebAssembly invocations of a session.
type EngineRule = word[engineRules]

type engineRules struct{}

func (engineRules) words() []string { return []string{"own", "request", "shared"} }

// Values of EngineRule, each granting more than the one before.
const (
	// EngineOwn gives each invocation a jail and a process of its own.
	EngineOwn EngineRule = iota
	// EngineRequest lets a session share one process among invocations if it was started with that
	// option.
	EngineRequest
	// EngineShared makes every session share one process.
	EngineShared
)

// LoopbackRule is which loopback interface the invocations of a session have.
type LoopbackRule = word[loopbackRules]

type loopbackRules struct{}

func (loopbackRules) words() []string { return []string{"own", "shared"} }

// Values of LoopbackRule, each granting more than the one before.
const (
	// loopbackOwn gives each invocation a network namespace of its own.
	loopbackOwn LoopbackRule = iota
	// LoopbackShared gives all programs of the host in a session one network namespace.
	LoopbackShared
)

// Session is what the invocations of a session may share.
type Session struct {
	Engine   EngineRule   `json:"engine"`
	Loopback LoopbackRule `json:"loopback"`
}

// TopSession returns the policy that shares everything.
func TopSession() Session { return Session{Engine: EngineShared, Loopback: LoopbackShared} }

// Meet shares what both share.
func (s Session) Meet(t Session) Session {
	s, t = s.Normal(), t.Normal()
	return Session{Engine: min(s.Engine, t.Engine), Loopback: min(s.Loopback, t.Loopback)}
}

// LessEq reports whether t shares all that s does.
func (s Session) LessEq(t Session) bool {
	s, t = s.Normal(), t.Normal()
	return s.Engine <= t.Engine && s.Loopback <= t.Loopback
}

// Normal returns the strictest value for each invalid one.
func (s Session) Normal() Session {
	return Session{s.Engine.orStrictest(), s.Loopback.orStrictest()}
}

func (s Session) String() string {
	s = s.Normal()
	return "engine " + s.Engine.String() + ", loopback " + s.Loopback.String()
}
