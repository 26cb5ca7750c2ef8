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

// EngineRuleWords returns the words of a policy file, the strictest first.
func EngineRuleWords() []string { return append([]string(nil), engineRuleWords...) }

func (e EngineRule) String() string { return word(engineRuleWords, e) }

// MarshalText writes the word of a policy file.
func (e EngineRule) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads the word of a policy file.
func (e *EngineRule) UnmarshalText(text []byte) error { return unword(engineRuleWords, e, text) }

// Session says what the invocations of a session may share.
type Session struct {
	Engine EngineRule `json:"engine"`
}

// TopSession shares all that can be shared.
func TopSession() Session { return Session{Engine: EngineShared} }

// Meet shares what both share.
func (s Session) Meet(t Session) Session {
	return Session{min(s.Normal().Engine, t.Normal().Engine)}
}

// LessEq reports whether t shares all that s does.
func (s Session) LessEq(t Session) bool { return s.Normal().Engine <= t.Normal().Engine }

// Normal returns the strictest value for an invalid one.
func (s Session) Normal() Session {
	if s.Engine > EngineShared {
		return Session{}
	}
	return s
}

func (s Session) String() string { return "engine " + s.Normal().Engine.String() }
