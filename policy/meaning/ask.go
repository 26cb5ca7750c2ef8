package meaning

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// An Ask is a question as a person asks it: read:/etc/passwd, connect:example.com:443,
// exec:git, env:HOME, commit:Makefile, limit:memory.
type Ask struct {
	Verb, Object string
	// Any has the alternatives. One is allowed if all of its questions are, and the Ask if any is.
	Any [][]policy.Question
	// Limit is the name of a limit, and Amount the wanted value, or 0 if none is given.
	Limit  string
	Amount int64
	// Internal is the operator's entry for the host of a connect; "" for a public host.
	Internal string
}

// Connects returns the Connect of the question. The bool is false if it has none.
func (a Ask) Connects() (policy.Connect, bool) {
	for _, way := range a.Any {
		for _, q := range way {
			if connect, ok := q.(policy.Connect); ok {
				return connect, true
			}
		}
	}
	return policy.Connect{}, false
}

// Verbs returns the verbs of questions.
func Verbs() []string {
	return []string{"read", "write", "exec", "connect", "env", "commit", "limit"}
}

func (a Ask) String() string { return a.Verb + " " + a.Object }

// Commands returns the bundles that have a command.
type Commands func(command string) (bundles []string)

// ParseAsk parses a question from its verb and object. p and commands resolve the bare name of
// exec.
func ParseAsk(verb, object string, p policy.Policy, commands Commands) (Ask, error) {
	a := Ask{Verb: verb, Object: object}
	if object == "" {
		return a, fmt.Errorf("%q: what it is about is missing, as in read:/etc/passwd", verb)
	}
	var err error
	switch verb {
	case "read":
		a.Any, err = openAsk(object, policy.Read)
	case "write":
		a.Any, err = openAsk(object, policy.Write)
	case "exec":
		a.Any, err = execAsk(object, p, commands)
	case "connect":
		a.Any, err = connectAsk(object)
	case "env":
		if err = policy.CheckEnvName(object); err == nil {
			a.Any = one(policy.EnvVar{Name: object})
		}
	case "commit":
		name := strings.TrimPrefix(object, policy.WorkspaceDir+"/")
		if path.Clean("/"+name) != "/"+name || name == "" {
			return a, fmt.Errorf("%q is no clean path in the workspace, such as src/main.c", object)
		}
		a.Any = one(policy.Commit{Path: name})
	case "limit":
		err = a.limit()
	default:
		err = fmt.Errorf("%q is nothing that can be asked: there are %s", verb,
			strings.Join(Verbs(), ", "))
	}
	return a, err
}

func one(q ...policy.Question) [][]policy.Question { return [][]policy.Question{q} }

// openAsk returns the questions for a path, which is in the workspace if it is not absolute.
func openAsk(object string, want policy.Rights) ([][]policy.Question, error) {
	at := object
	if !path.IsAbs(at) {
		at = policy.WorkspaceDir + "/" + at
	}
	if path.Clean(at) != at || strings.ContainsRune(at, 0) {
		return nil, fmt.Errorf("%q is no clean path: no .., no double slash, no slash at the end",
			object)
	}
	return one(policy.Open{Path: at, Want: want}), nil
}

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// execAsk looks up a bare name as a run would: as a bundle command, else on the PATH.
func execAsk(object string, p policy.Policy, commands Commands) ([][]policy.Question, error) {
	bundle, command, pair := strings.Cut(object, "/")
	switch {
	case strings.HasSuffix(object, ".wasm"):
		if !path.IsAbs(object) || path.Clean(object) != object {
			return nil, fmt.Errorf("%q: a module is asked about by its clean absolute path", object)
		}
		return one(policy.Module{Path: object}), nil
	case path.IsAbs(object):
		if path.Clean(object) != object {
			return nil, fmt.Errorf("%q is no clean path", object)
		}
		return [][]policy.Question{native(object)}, nil
	case pair:
		if strings.Contains(command, "/") || bundle == "" || command == "" {
			return nil, fmt.Errorf("%q is neither a bundle/command nor an absolute path", object)
		}
		return one(policy.Tool{Bundle: bundle, Command: command}), nil
	}
	var ways [][]policy.Question
	if commands != nil {
		for _, b := range commands(object) {
			ways = append(ways, []policy.Question{policy.Tool{Bundle: b, Command: object}})
		}
	}
	list := defaultPath
	if value, ok := p.Env.Set.Values["PATH"]; ok {
		list = value
	}
	for dir := range strings.SplitSeq(list, ":") {
		if path.IsAbs(dir) {
			ways = append(ways, native(path.Join(dir, object)))
		}
	}
	return ways, nil
}

func native(at string) []policy.Question {
	return []policy.Question{policy.Native{Path: at}, policy.Open{Path: at, Want: policy.Exec}}
}

// connectAsk parses HOST, HOST:PORT, or [METHOD] https://HOST[:PORT]/PATH.
func connectAsk(object string) ([][]policy.Question, error) {
	method, rest, two := strings.Cut(object, " ")
	if !two {
		method, rest = "", object
	}
	q := policy.Connect{Port: 443, Method: method}
	scheme, after, isURL := strings.Cut(rest, "://")
	if isURL {
		switch scheme {
		case "https":
		case "http":
			q.Port = 80
		default:
			return nil, fmt.Errorf("%q: a request is https:// or http://", object)
		}
		host, requestPath, _ := strings.Cut(after, "/")
		rest, q.Path = host, "/"+requestPath
		// A path without a canonical form is denied with a reason.
		if form, err := policy.CanonicalPath(q.Path); err == nil {
			q.Path = form
		}
		q.Method = cmp.Or(q.Method, "GET")
	} else if q.Method != "" {
		return nil, fmt.Errorf(
			"%q: a method goes with a whole address, as in GET https://example.com/", object)
	}
	host, port, hasPort := strings.Cut(rest, ":")
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q: port %q is no number from 1 to 65535", object, port)
		}
		q.Port = uint16(n)
	}
	name, err := policy.ParseHostName(host)
	if err != nil {
		return nil, err
	}
	q.Host = name
	return one(q), nil
}

// limit parses NAME or NAME=AMOUNT.
func (a *Ask) limit() error {
	name, amount, _ := strings.Cut(a.Object, "=")
	a.Limit = strings.TrimSpace(name)
	f := limitOf(a.Limit)
	if _, ok := f.At(&policy.Policy{}).(*int64); !ok {
		return fmt.Errorf("%q is no limit: there are %s", a.Limit, strings.Join(limitNames(), ", "))
	}
	if amount == "" {
		return nil
	}
	n, err := f.Unit.Parse(strings.TrimSpace(amount))
	a.Amount = n
	return err
}

// limitOf returns the field of a limit. name is its key without "limits.".
func limitOf(name string) policy.Field {
	if fetch, ok := strings.CutPrefix(name, "fetch."); ok {
		return policy.FieldOf("fetch.limits." + fetch)
	}
	return policy.FieldOf("limits." + name)
}

func limitNames() []string {
	var out []string
	for _, f := range policy.Fields("limits", "fetch.limits") {
		out = append(out, strings.Replace(f.Key, "limits.", "", 1))
	}
	return out
}
