// Package wire holds what a client and a daemon must agree on before a tool runs: the paths, the
// switch of protocols, and the sentences for a daemon that gives no result. It imports nothing, so
// that the program that people start most has nothing to initialise.
package wire

// Number is that of the API: a client and a daemon of one number understand one another, whatever
// their versions.
const Number = 1

// NumberHeader is the header by which a request for streams names the API that its client speaks. A
// daemon that speaks another one refuses the request, so such a client need not ask for the version
// first. Daemons before 0.8.0 ignore it; they all speak API 1.
const NumberHeader = "Jail-Api"

// StreamsHeader is the header of an answer that agrees to Passed.
const StreamsHeader = "Jail-Streams"

// Paths of the API.
const (
	PathRuns     = "/v1/runs"
	PathSessions = "/v1/sessions"
)

// What the query of a request for a run or an invocation asks of the streams of the tool: Joined for
// one pipe for both outputs, NoInput for /dev/null as standard input. They are no fields of the
// request: daemons before 0.8.0 refuse those that they do not know, and ignore these.
const (
	Joined  = QueryOutput + "=" + OutputJoined
	NoInput = QueryInput + "=" + InputNone
	// Passed asks for the pipes of standard input and output themselves. A daemon that passes them
	// says so by StreamsHeader in its answer.
	Passed = QueryStreams + "=" + StreamsPassed
)

// Parts of Joined and NoInput.
const (
	QueryOutput  = "output"
	OutputJoined = "joined"
	QueryInput   = "input"
	InputNone    = "none"

	QueryStreams  = "streams"
	StreamsPassed = "passed"
)

// Upgrade is the protocol that POST /v1/runs switches to: the streams of a run, see api.FrameKind.
const Upgrade = "jail-streams"

// Kinds of frames: see api.FrameKind.
const (
	FrameInput       = 'i'
	FrameInputEnd    = 'e'
	FrameSize        = 's'
	FrameCredit      = 'c'
	FrameOutput      = '1'
	FrameErrorOutput = '2'
	FrameResult      = 'r'
	FramePassed      = 'p'
)

// Bounds of the content of one frame, in bytes: of any, and of one from a client, of which the
// daemon holds InputWindow and more for each connection.
const (
	MaxFrame       = 16 << 20
	MaxClientFrame = 64 << 10
)

// InputWindow is how many frames of input may be under way.
const InputWindow = 4

// CodeEnding is the code of a result from a daemon that ends and has begun nothing.
const CodeEnding = "ending"

// What a client says of a daemon that gave no result, and what to do.
const (
	Cut     = "the daemon went away before the run ended"
	CutHint = "it has died or was killed; the next one puts on record what became of the " +
		"run: jail inspect ID"
	Gone         = "the daemon is gone: nobody listens on its socket any more"
	GoneHint     = "start jaild and try again"
	NoAnswer     = "the daemon went away before it answered"
	NoAnswerHint = "it was ended, has died, or has more connections than it takes: look whether " +
		"jaild runs, and try again"
	NoSense     = "no answer of the daemon"
	NoSenseHint = "look whether what listens on the socket is jaild, and of this version"
	SlowHint    = "look at what it does: systemctl status jaild"
)

// Version is the version of jail, as CHANGELOG.md has it.
const Version = "0.8.0"
