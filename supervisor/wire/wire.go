// Package wire holds what a client and a daemon must agree on before a tool runs: the paths, the
// switch of protocols, and the sentences for a daemon that gives no result. It imports nothing, so
// that the program that people start most has nothing to initialise.
package wire

// Number is the version of the API. A client and a daemon with the same number can work together,
// whatever their releases.
const Number = 1

// NumberHeader is the request header for streams that names the client's API version. A daemon with
// another version refuses the request, so the client need not ask first. Daemons before 0.8.0
// ignore it and speak API 1.
const NumberHeader = "Jail-Api"

// StreamsHeader is the response header by which a daemon agrees to Passed.
const StreamsHeader = "Jail-Streams"

// Paths of the API.
const (
	PathRuns     = "/v1/runs"
	PathSessions = "/v1/sessions"
)

// Query parameters of a request for a run or invocation: Joined asks for one pipe for both outputs,
// NoInput for /dev/null as standard input. They are not fields of the request because daemons
// before 0.8.0 refuse unknown fields, but ignore unknown parameters.
const (
	Joined  = QueryOutput + "=" + OutputJoined
	NoInput = QueryInput + "=" + InputNone
	// Passed asks the daemon to pass the pipes of standard input and output themselves. A daemon
	// that does sets StreamsHeader.
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

// Upgrade is the protocol to which POST /v1/runs switches for the streams of a run. See
// api.FrameKind.
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

// Bounds on the content of one frame, in bytes. Frames from clients have the lower one, since the
// daemon buffers InputWindow of them and more for each connection.
const (
	MaxFrame       = 16 << 20
	MaxClientFrame = 64 << 10
)

// InputWindow is how many frames of input may be under way, that is sent and not yet read.
const InputWindow = 4

// CodeEnding is the code in the result of a daemon that is ending and has begun nothing.
const CodeEnding = "ending"

// Messages and hints of a client for a daemon that gave no result.
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
