package policy

// EngineRule says which process carries out the WebAssembly invocations of a session.
type EngineRule uint8

// Values of EngineRule, each granting more than the one before.
const (
	// EngineOwn gives each invocation a jail and a process of its own.
	EngineOwn EngineRule = iota
	// EngineRequest lets a session share one process among invocations if it was started so.
	EngineRequest
	// EngineShared has every session do so.
	EngineShared
)

var engineRuleWords = []string{"own", "request", "shared"}

// Choices returns the words of a policy file, the strictest first.
func (EngineRule) Choices() []string { return append([]string(nil), engineRuleWords...) }

func (e EngineRule) String() string { return word(engineRuleWords, e) }

// MarshalText writes the word of a policy file.
func (e EngineRule) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads the word of a policy file.
func (e *EngineRule) UnmarshalText(text []byte) error { return unword(engineRuleWords, e, text) }

// LoopbackRule says which loopback interface the invocations of a session have.
type LoopbackRule uint8

// Values of LoopbackRule, each granting more than the one before.
const (
	// LoopbackOwn gives each invocation a network namespace of its own.
	LoopbackOwn LoopbackRule = iota
	// LoopbackShared gives the programs of the host of a session one network namespace.
	LoopbackShared
)

var loopbackRuleWords = []string{"own", "shared"}

// Choices returns the words of a policy file, the strictest first.
func (LoopbackRule) Choices() []string { return append([]string(nil), loopbackRuleWords...) }

func (l LoopbackRule) String() string { return word(loopbackRuleWords, l) }

// MarshalText writes the word of a policy file.
func (l LoopbackRule) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the word of a policy file.
func (l *LoopbackRule) UnmarshalText(text []byte) error {
	return unword(loopbackRuleWords, l, text)
}

// Session says what the invocations of a session may share.
type Session struct {
	Engine   EngineRule   `json:"engine"`
	Loopback LoopbackRule `json:"loopback"`
}

// TopSession shares all that can be shared.
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
	if s.Engine > EngineShared {
		s.Engine = EngineOwn
	}
	if s.Loopback > LoopbackShared {
		s.Loopback = LoopbackOwn
	}
	return s
}

func (s Session) String() string {
	s = s.Normal()
	return "engine " + s.Engine.String() + ", loopback " + s.Loopback.String()
}
