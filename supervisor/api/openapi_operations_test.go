package api

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/hostpolicy"
	"github.com/jail-sandbox/jail/supervisor/images"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// An operationText is what openapi.json says of a route of the table routes.
type operationText struct {
	id, summary, about string
	// in is the type of the request body, and out that of the body of a success. result is the
	// type of the last frame of a stream.
	in, out, result reflect.Type
	query           []query
	// upgrade says whether the answer is a stream of frames.
	upgrade int
	// takes and gives are the media types of the request and of the answer, if they are not JSON.
	takes, gives string
	// done describes the answer, if it is more than "Done.".
	done string
}

const (
	onRequest = iota + 1
	always
)

// A query is a parameter in the query of a URL.
type query struct {
	name string
	// kind is the type in the schema; empty is string.
	kind, format string
	enum         []string
	about        string
}

// toolStreams is the query for the streams of a tool.
var toolStreams = []query{{name: "output", enum: []string{"joined"},
	about: "joined gives the tool one pipe for its standard output and standard error: both come " +
		"as output, in the order in which the tool wrote them, and the error output is empty."},
	{name: "input", enum: []string{"none"},
		about: "none gives a program of the host /dev/null as its standard input, in place of " +
			"the frames of input. Requests without streams have no input either."}}

// runStreams is toolStreams of a run, which may be an agent's.
var runStreams = append(slices.Clone(toolStreams), query{name: "streams", enum: []string{"passed"},
	about: "passed asks for the pipes of the standard input and output of an agent. A daemon that " +
		"passes them says so by the header `Jail-Streams: passed` in its answer, and sends one frame " +
		"`p` without content, with the writing end of the input and the reading end of the output as " +
		"descriptors (SCM_RIGHTS). There are no frames `i`, `e`, `c` and `1` then. Other runs ignore it."})

// operations has all routes, by method and path.
var operations = map[string]operationText{
	"GET /v1/version": {
		id:      "getVersion",
		summary: "What answers.",
		out:     reflect.TypeFor[Version](),
	},
	"GET /v1/openapi.json": {
		id:      "getOpenAPI",
		summary: "This description.",
	},
	"GET /v1/metrics": {
		id:      "getMetrics",
		summary: "What the daemon has counted, in the text format of Prometheus.",
		about: "Names of users, tools, files and hosts are not in it. The keys of " +
			"/etc/jail/jaild.toml say whether it is on a loopback port, too, as /metrics.",
		gives: "text/plain",
		out:   reflect.TypeFor[string](),
	},
	"GET /v1/policy": {
		id:      "getPolicy",
		summary: "Which policy files are in force.",
		about: "Looks at nothing but what the daemon knows. What is on the disk is looked at " +
			"before each run, when it changes, and every few seconds.",
		out: reflect.TypeFor[hostpolicy.Status](),
	},
	"GET /v1/host": {
		id:      "getHost",
		summary: "What the host, and the daemon on it, can enforce.",
		about: "Tries what a run needs from within the daemon, by making it and taking it away " +
			"again. Calls within one second share one look. The places that heads of the log go " +
			"to are in it for those who may read all records.",
		out: reflect.TypeFor[message.HostStatus](),
	},
	"POST /v1/plan": {
		id:      "makePlan",
		summary: "What the kernel would be told for a run; starts nothing.",
		about:   "The range of host ids in it is one that is free now.",
		in:      reflect.TypeFor[message.Request](),
		out:     reflect.TypeFor[jail.Plan](),
	},
	"GET /v1/runs": {
		id:      "listRuns",
		summary: "The live runs that the caller may see.",
		out:     reflect.TypeFor[[]message.RunInfo](),
	},
	"POST /v1/runs": {
		id:      "startRun",
		summary: "Start a run, and carry its streams until it ends or answer with its result.",
		about: "With the headers `Connection: Upgrade` and `Upgrade: jail-streams` the answer is " +
			"101, and from then on both sides send frames over the same connection " +
			"(x-frames). A client that has not asked for the version adds `Jail-Api: 1`: a " +
			"daemon of another API refuses it before it reads the request.\n\n" +
			"A frame is one byte of kind, four bytes of length, big-endian, and " +
			"so many bytes of content: at most 64 KiB from the client, and 16 MiB from the " +
			"server.\n\nThe client sends input (`i`) as far as it has leave to: it begins with " +
			"leave for four frames, and each credit (`c`) from the server is leave for one " +
			"more. It ends its input with `e`; a client without input sends that at once. More " +
			"than it has leave for, a larger frame, an empty one of input, or one of another " +
			"kind ends the run, and the `error` of its result says so.\n\nThe server sends the " +
			"tool's output (`1`) and error output (`2`) as it is written, and at last the " +
			"result (`r`), whose content is a Result as JSON; then it closes the connection. A " +
			"run that was refused, or that jail could not start, has a result too, with `error` " +
			"in it.\n\nA client that closes the connection, or its sending half, ends the " +
			"run.\n\nWithout these headers the tool has no input, and the answer is 200 with " +
			"the Result when the run has ended, the tool's output inside: `curl --unix-socket " +
			"/run/jail/jail.sock -d '{\"tool\":\"ls\",\"dir\":\"/srv/data\"}' " +
			"http://jail/v1/runs`. A client that goes away ends the run. Of each stream the " +
			"first 16 MiB are kept; `truncated` says that there was more.",
		query:   runStreams,
		upgrade: onRequest,
		in:      reflect.TypeFor[message.Request](),
		result:  reflect.TypeFor[message.Result](),
	},
	"GET /v1/runs/{id}": {
		id:      "inspectRun",
		summary: "A live run, or the records of one that has ended.",
		about: "At most 10,000 records. A user but root can have one answer from the log at a " +
			"time, as with POST /v1/records.",
		out: reflect.TypeFor[Records](),
	},
	"PUT /v1/runs/{id}": {
		id:      "detachRun",
		summary: "Start a run that goes on without its client.",
		about: "Answers once the tool runs, or has run. Asked for twice in the same words it is " +
			"one run; an id that stands for another request is refused. The output is kept, up " +
			"to the policy's limit and 64 MiB.",
		in:  reflect.TypeFor[message.DetachRequest](),
		out: reflect.TypeFor[message.DetachedInfo](),
	},
	"GET /v1/runs/{id}/verify": {
		id:      "verifyRun",
		summary: "Whether the jail of a live run is what its plan says.",
		about: "The kernel is asked, from outside: nothing is attached to the run. A difference is " +
			"no problem but a finding.",
		out: reflect.TypeFor[rundir.Verification](),
	},
	"POST /v1/runs/{id}/kill": {
		id:      "killRun",
		summary: "End a run.",
		about: "The answer comes when the end is on its way; the result of the run says how it " +
			"ended.",
		in:  reflect.TypeFor[KillRequest](),
		out: reflect.TypeFor[struct{}](),
	},
	"GET /v1/workspaces": {
		id:      "listWorkspaces",
		summary: "The shadows that are kept, the eldest first.",
		out:     reflect.TypeFor[[]shadows.WorkspaceInfo](),
	},
	"POST /v1/agents/records": {
		id:      "recordAgents",
		summary: "Put steps of the caller's agents on record.",
		about: "All of them or none. The records have the caller as their actor, as the kernel " +
			"names it.",
		in:  reflect.TypeFor[AgentRecords](),
		out: reflect.TypeFor[AgentRecorded](),
	},
	"POST /v1/containers": {
		id:      "planContainer",
		summary: "What an OCI container gets of what its config.json asks for.",
		about: "For jail-oci, and for root alone. The start of the container is on record before the " +
			"answer. Sources of binds are real paths, without links.",
		in:  reflect.TypeFor[oci.AskPlan](),
		out: reflect.TypeFor[oci.Planned](),
	},
	"POST /v1/containers/{id}/report": {
		id:      "reportContainer",
		summary: "Say what became of the plan of a container, once.",
		about: "With `pid` the daemon waits for the process, which need not have been started, and puts " +
			"its end on record. With `error` there is no container.",
		in: reflect.TypeFor[oci.Made](),
	},
	"POST /v1/containers/{id}/exec": {
		id:      "execContainer",
		summary: "What one more process of a container gets; it is put on record.",
		in:      reflect.TypeFor[oci.AskExec](),
		out:     reflect.TypeFor[oci.GrantedExec](),
	},
	"GET /v1/approvals": {
		id:      "listApprovals",
		summary: "The actions that wait for an approval, the eldest first.",
		query: []query{{name: "all", enum: []string{"1"},
			about: "1: also those that are over, the last 1,000 of the last seven days."},
			{name: "wait", kind: "integer", about: "Answer as soon as the actions that wait, or their " +
				"states, are others than those of \"seen\", or after so many seconds, at most 600."},
			{name: "seen", about: "The SHA-256, in hexadecimal digits, of a line \"ID STATE\" for each " +
				"action of the last answer."}},
		out: reflect.TypeFor[[]approvals.Action](),
	},
	"POST /v1/approvals": {
		id:      "proposeAction",
		summary: "Propose an action.",
		about: "It waits until somebody decides, for seven days at most. A commit that a grant allows " +
			"is applied before the answer. An action of another type is approved at once where a " +
			"grant or the policy of the run allows it, and carried out by who proposed it: claim it, " +
			"do it, and report how it ended.",
		in:  reflect.TypeFor[ProposeRequest](),
		out: reflect.TypeFor[approvals.Action](),
	},
	"GET /v1/approvals/{id}": {
		id:      "getApproval",
		summary: "One action.",
		query: []query{{name: "wait", kind: "integer",
			about: "Answer as soon as the action no longer waits, or after so many seconds, at most 600."}},
		out: reflect.TypeFor[approvals.Action](),
	},
	"DELETE /v1/approvals/{id}": {
		id:      "withdrawAction",
		summary: "Take an action back that was not applied.",
		out:     reflect.TypeFor[approvals.Action](),
	},
	"POST /v1/approvals/{id}/decide": {
		id:      "decideAction",
		summary: "Approve or reject an action.",
		about: "An approved action is applied before the answer, with the rights of its owner. Where " +
			"what it is about has changed, it is stale, the answer is 409, and nothing is done. The " +
			"connection over which it was proposed, and a process in a jail or another container, " +
			"cannot decide.",
		in:  reflect.TypeFor[approvals.DecideRequest](),
		out: reflect.TypeFor[approvals.Action](),
	},
	"POST /v1/approvals/{id}/revert": {
		id:      "revertAction",
		summary: "Undo an action that was applied.",
		about: "An action that its proposer carried out is reverting until the proposer has undone it " +
			"and says so.",
		out: reflect.TypeFor[approvals.Action](),
	},
	"POST /v1/approvals/{id}/claim": {
		id:      "claimAction",
		summary: "Claim an approved action that the proposer carries out.",
		about: "The claim is on the disk and on record before the answer. It is given once: 409 for " +
			"every other claim, also over restarts of the daemon. An action that is reverting is " +
			"claimed in the same way.",
		in:  reflect.TypeFor[ClaimRequest](),
		out: reflect.TypeFor[approvals.Action](),
	},
	"POST /v1/approvals/{id}/report": {
		id:      "reportAction",
		summary: "Say how a claimed action ended.",
		about:   "The same report may come again.",
		in:      reflect.TypeFor[approvals.ReportRequest](),
		out:     reflect.TypeFor[approvals.Action](),
	},
	"POST /v1/approvals/{id}/settle": {
		id:      "settleAction",
		summary: "Say how an action ended whose proposer does not.",
		about: "For a person who may decide on the action and has looked; nothing is done. 409 while " +
			"the process lives that has claimed the action.",
		in:  reflect.TypeFor[approvals.SettleRequest](),
		out: reflect.TypeFor[approvals.Action](),
	},
	"GET /v1/grants": {
		id:      "listGrants",
		summary: "The grants that allow actions without a decision, the eldest first.",
		out:     reflect.TypeFor[[]approvals.Grant](),
	},
	"DELETE /v1/grants/{id}": {
		id:      "revokeGrant",
		summary: "End a grant.",
		out:     reflect.TypeFor[approvals.Grant](),
	},
	"DELETE /v1/workspaces/{id}": {
		id:      "discardWorkspace",
		summary: "Throw a shadow away.",
		about:   "409 where a session or run that is alive uses it, unless force=1 ends that first.",
		query: []query{
			{name: "force", enum: []string{"1"},
				about: "1: end the session or run that uses it first; also where a commit was cut " +
					"off that " +
					"can be neither finished nor undone. The directory stays as it is, and a " +
					"record " +
					"says what is left in it."},
		},
		out: reflect.TypeFor[struct{}](),
	},
	"GET /v1/workspaces/{id}/changes": {
		id:      "reviewWorkspace",
		summary: "What a shadow would change.",
		about: "One line of JSON each, streamed, so that a change set may have any size. The " +
			"processes of an open session or a run that runs are stopped until all of it is " +
			"collected.",
		query: []query{
			{name: "patch", enum: []string{PatchPlain, PatchTerminal},
				about: "Ask for the differences as text too: plain for git apply, terminal with " +
					"control " +
					"characters escaped, reversibly."},
			{name: "hunks", enum: []string{"1"},
				about: "1 asks for the hunks of each change after it."},
			{name: "path", about: "Only changes at and below this path, which may be a pattern; " +
				"several times for several paths. The digest is that of all changes. " +
				"404 if no change has it."},
		},
		gives: "application/x-ndjson",
		done:  "Lines, each a ReviewLine.",
		out:   reflect.TypeFor[ReviewLine](),
	},
	"POST /v1/workspaces/{id}/commit": {
		id:      "commitWorkspace",
		summary: "Write changes of a shadow to the real directory.",
		about: "All that is asked for or none of it; with the rights of the caller. 409 where a " +
			"path changed on both sides, or the digest is not that of the changes; 403 where " +
			"protected names were asked for without an explicit yes. The processes of an open " +
			"session or a run that runs are stopped until the commit is done.",
		in:  reflect.TypeFor[shadows.CommitRequest](),
		out: reflect.TypeFor[workspace.Result](),
	},
	"POST /v1/workspaces/{id}/discard": {
		id:      "discardPaths",
		summary: "Throw a part of the changes in a shadow away.",
		about: "What is discarded in the shadow of an open session or a run that runs is no " +
			"change until a tool changes it again. The tools see it as before.",
		in:  reflect.TypeFor[shadows.DiscardRequest](),
		out: reflect.TypeFor[shadows.Discarded](),
	},
	"POST /v1/workspaces/{id}/revert": {
		id:      "revertWorkspace",
		summary: "Undo the last commit of a shadow.",
		about: "All of it or none; with the rights of the caller. 409 where a path is not as the " +
			"commit left it, or what it replaced is not kept. The processes of an open session " +
			"or a run that runs are stopped until the revert is done.",
		in:  reflect.TypeFor[shadows.RevertRequest](),
		out: reflect.TypeFor[workspace.Reverted](),
	},
	"GET /v1/caches": {
		id:      "listCaches",
		summary: "The caches that runs keep: all for root, else the caller's own.",
		about:   "Those used last come first.",
		out:     reflect.TypeFor[[]workspace.CacheInfo](),
	},
	"DELETE /v1/caches/{id}": {
		id:      "removeCache",
		summary: "Remove a cache.",
		about:   "One that a run or session uses is not removed.",
		out:     reflect.TypeFor[struct{}](),
	},
	"POST /v1/prune": {
		id:      "prune",
		summary: "Forget what is kept of commits for longer than it should be.",
		about:   "Shadows of which nothing else is left go with it.",
		out:     reflect.TypeFor[shadows.Pruned](),
	},
	"POST /v1/records": {
		id:      "queryRecords",
		summary: "Records of the audit log: all for root, else those of the caller's own runs.",
		about: "One line of JSON each, streamed, the oldest first. That there are others is not " +
			"told. A user but root can have one such answer at a time.",
		gives: "application/x-ndjson",
		done:  "Lines, each a RecordLine.",
		in:    reflect.TypeFor[message.RecordsRequest](),
		out:   reflect.TypeFor[RecordLine](),
	},
	"GET /v1/events": {
		id: "followRecords",
		summary: "Records of the audit log as they are written: all for root, else those of the " +
			"caller's own runs.",
		about: "One record a line, as it stands in the log, sent as it is written; only those that " +
			"all of the conditions want. The first empty line says that all those were sent " +
			"that were there at the beginning; from then on one comes where nothing else did " +
			"for 15 seconds. A reader that was cut off asks again with after as the number of " +
			"the last record that it has seen, or with that of the header Jail-After where it " +
			"saw none: no record is missing then, and none comes twice. The stream ends with " +
			"the client or with the daemon, and in the latter case, as after whatever else goes " +
			"wrong, the last line is a Problem. 400: after is a number that the log has not " +
			"come to. 404: records behind after were taken away (prune). A client that takes " +
			"nothing for 30 seconds is let go. A user but root can have four such streams at " +
			"one time, and while one sends what was there before, the log is not read for the " +
			"user otherwise.",
		query: []query{
			{name: "after", kind: "integer",
				about: "Only records with a larger number, from 0: all that the log has. Without " +
					"it only " +
					"those that come from now on."},
			{name: "run", about: "Of that run."},
			{name: "session", about: "Of that session."},
			{name: "type",
				about: "Such as denied or run.finished; if there is more than one, any of them."},
			{name: "since", format: "date-time", about: "Only from that time on."},
			{name: "until", format: "date-time", about: "Only before it."},
			{name: "uid", kind: "integer", about: "Of who asked for what was done."},
			{name: "policy", about: "Digest of the effective policy, or its beginning."},
			{name: "tool", about: "Of runs of that tool."},
			{name: "decision", about: "denied or allowed."},
			{name: "layer", about: "That refused."},
			{name: "host", about: "Of fetches: a name, or *. and a name for those below it."},
			{name: "path", about: "A pattern, such as /etc/**."},
		},
		gives: "application/x-ndjson",
		done:  "Lines, each a record, empty, or at last a Problem.",
		out:   reflect.TypeFor[json.RawMessage](),
	},
	"POST /v1/tools": {
		id: "installTool",
		summary: "Verify a bundle that was pulled, and install it; for root and whom " +
			"[permissions.administer] names.",
		about: "The body is an Offer as one line of JSON of at most 2 MiB, and behind its end of " +
			"line the files of the bundle, one behind the other, in the order and of the sizes " +
			"that the manifest has them: modules, then licences. Nothing is written whose " +
			"digest nobody signed.",
		takes: "application/vnd.jail.bundle",
		in:    reflect.TypeFor[bundle.Offer](),
		out:   reflect.TypeFor[bundle.Installed](),
	},
	"DELETE /v1/tools/{name}": {
		id:      "removeTool",
		summary: "Take a pulled bundle away; for root and whom [permissions.administer] names.",
		query: []query{
			{name: "forget", enum: []string{"1"},
				about: "1: drop what was seen of its versions too, so that an older one can be " +
					"installed; " +
					"root only."},
		},
		out: reflect.TypeFor[bundle.Installed](),
	},
	"GET /v1/images": {
		id:      "listImages",
		summary: "The images that were added, and those of directories that the caller's runs have used.",
		out:     reflect.TypeFor[[]images.About](),
	},
	"PUT /v1/images/{name}": {
		id: "addImage",
		summary: "Unpack an image of a directory for every user, by a name; for root and whom " +
			"[permissions.administer] names.",
		about: "The directory is read with the caller's rights. An image of that name is replaced; " +
			"runs that have it go on.",
		in:  reflect.TypeFor[images.ImageOffer](),
		out: reflect.TypeFor[images.About](),
	},
	"DELETE /v1/images/{name}": {
		id:      "removeImage",
		summary: "Remove an image.",
		about: "By its name one that was added, for root and whom [permissions.administer] names; by " +
			"its digest one that the caller's runs have unpacked from a directory.",
		out: reflect.TypeFor[images.About](),
	},
	"PUT /v1/publishers/{name}": {
		id:      "setRing",
		summary: "Put the key ring of a publisher into use; root only.",
		in:      reflect.TypeFor[RingRequest](),
		out:     reflect.TypeFor[struct{}](),
	},
	"DELETE /v1/publishers/{name}": {
		id:      "removeRing",
		summary: "Take the keys of a publisher out of use; root only.",
		out:     reflect.TypeFor[struct{}](),
	},
	"GET /v1/runs/{id}/result": {
		id:      "waitRun",
		summary: "Wait for the end of a run.",
		about:   "The result has no output. A detached run can be asked for after its end too.",
		out:     reflect.TypeFor[message.Result](),
	},
	"GET /v1/runs/{id}/logs": {
		id:      "readLogs",
		summary: "What a detached run writes, from its start.",
		about: "Frames as those of a run: output and errorOutput, then result if it has ended, " +
			"else inputEnd.",
		query: []query{
			{name: "follow", enum: []string{"1"}, about: "1 asks to go on until the run ends."},
		},
		gives: "application/vnd.jail.frames",
		done:  "Frames.",
	},
	"POST /v1/runs/{id}/attach": {
		id:      "attachRun",
		summary: "The streams of a detached run, from its start.",
		about: "As starting a run. A client that closes the connection leaves the run alone. Input " +
			"is for a run that was started with input, and of one client at a time.",
		upgrade: always,
		in:      reflect.TypeFor[AttachRequest](),
		result:  reflect.TypeFor[message.Result](),
	},
	"GET /v1/sessions": {
		id:      "listSessions",
		summary: "The open sessions that the caller may see.",
		out:     reflect.TypeFor[[]message.SessionInfo](),
	},
	"PUT /v1/sessions/{id}": {
		id:      "startSession",
		summary: "Open a session.",
		about: "Answers once it can have invocations. Asked for twice in the same words it is one " +
			"session; an id that stands for another request is refused.",
		in:  reflect.TypeFor[message.SessionRequest](),
		out: reflect.TypeFor[message.SessionInfo](),
	},
	"POST /v1/sessions/{id}/exec": {
		id:      "execInSession",
		summary: "Run a tool in a session and carry its streams until it ends.",
		about: "As starting a run. A client that closes the connection ends the invocation, and " +
			"the session lives. Without the headers of the upgrade the answer is the Result, as " +
			"there.",
		query:   toolStreams,
		upgrade: onRequest,
		in:      reflect.TypeFor[message.ExecRequest](),
		result:  reflect.TypeFor[message.Result](),
	},
	"POST /v1/sessions/{id}/fork": {
		id:      "forkSession",
		summary: "Make a branch of the shadow of a session or of a run that is kept.",
		about: "The branch is a session that sleeps. A session that is open is put to sleep; it is " +
			"refused while an invocation runs. For the shadow of a run, the body says which session " +
			"the branch is.",
		in:  reflect.TypeFor[message.ForkRequest](),
		out: reflect.TypeFor[shadows.BranchInfo](),
	},
	"GET /v1/branches": {
		id:      "listBranches",
		summary: "The branches that the caller may see, the oldest first.",
		out:     reflect.TypeFor[[]shadows.BranchInfo](),
	},
	"GET /v1/branches/{id}/diff": {
		id:      "diffBranches",
		summary: "Compare two shadows of one directory.",
		about:   "Either may be a branch or not, and of a session that is open.",
		query:   []query{{name: "with", about: "The other shadow."}},
		out:     reflect.TypeFor[shadows.Comparison](),
	},
	"POST /v1/branches/{id}/preview": {
		id:      "previewMerge",
		summary: "What a branch changed since its fork, as a merge would take it into its parent.",
		about:   "Puts the sessions of the branch and of its parent to sleep.",
		out:     reflect.TypeFor[workspace.MergePreview](),
	},
	"POST /v1/branches/{id}/merge": {
		id:      "mergeBranch",
		summary: "Take what a branch changed into the shadow that it was forked from.",
		about: "All or nothing of what the request chooses. Puts the sessions of both to sleep; it is " +
			"refused while an invocation runs in one of them.",
		in:  reflect.TypeFor[shadows.MergeRequest](),
		out: reflect.TypeFor[workspace.Result](),
	},
	"POST /v1/branches/{id}/revert": {
		id:      "revertMerge",
		summary: "Undo the last merge of a branch.",
		out:     reflect.TypeFor[workspace.MergeRecord](),
	},
	"DELETE /v1/branches/{id}": {
		id:      "discardBranch",
		summary: "End the session of a branch, and throw its shadow away.",
	},
	"POST /v1/sessions/{id}/stop": {
		id:      "stopSession",
		summary: "End a session, and what still runs in it.",
		about:   "Answers when its shadow has its fate.",
		in:      reflect.TypeFor[message.StopRequest](),
		out:     reflect.TypeFor[message.Result](),
	},
}
