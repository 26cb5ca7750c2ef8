package manifest

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/id"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/redact"
)

// Bounds of a task.
const (
	defaultTimeout = 30 * time.Minute
	maxTimeout     = 24 * time.Hour
	maxPrompt      = 256 << 10
)

// Kinds of forges, where pull requests are made.
const (
	gitHub = "github"
	Gitea  = "gitea"
	// NoForge means that no pull request is made.
	NoForge = "none"
)

// A Task is a task of jail worker: a change to a git repository, on a branch of its own.
type Task struct {
	ID string
	// Repo is the https URL of the repository, without a user. Credential is the name of the
	// credential for git, empty for none.
	Repo       *url.URL
	Credential string
	// Submodules are the https URLs of the submodules to fetch.
	Submodules []*url.URL
	// Branch is the branch to push. Base is the branch to start from, empty for the repository's
	// HEAD.
	Branch, Base string
	Prompt       string
	Timeout      time.Duration
	Profile      string
	Model        TaskModel
	Forge        Forge
	Coordinator  Coordinator
}

// A TaskModel is the model for a task.
type TaskModel struct {
	// Name is the name of a role of models.toml. If it is empty, Role is used.
	Name string
	Role Role
	// Key is the name of a credential that replaces the role's, unless it is empty.
	Key string
}

// A Forge is the service where the pull request is made.
type Forge struct {
	Kind       string
	API        *url.URL
	Credential string
}

// A Coordinator is a service that gets progress reports of a task. Its URL is nil for none.
type Coordinator struct {
	URL        *url.URL
	Credential string
}

// ParseTask parses the text of a task file, strictly. If it is invalid, the error is a
// syntax.Errors with all errors.
func ParseTask(source string, text []byte) (Task, error) {
	r, t, err := open(syntax.PlainAt, source, text)
	if err != nil {
		return Task{}, err
	}
	r.keys(t, "task", "id", "repo", "credential", "submodules", "branch", "base", "prompt", "timeout",
		"profile", "model", "forge", "coordinator")
	if v, ok := t.values["task"].(int64); !ok || v != 1 {
		r.fail("task", "write `task = 1` as the first line", "the version of the task is missing or not 1")
	}
	field := func(t table, key string) string {
		v, _ := r.text(t, key)
		return v
	}
	var task Task
	task.ID, task.Credential = field(t, "id"), field(t, "credential")
	task.Branch, task.Base, task.Profile = field(t, "branch"), field(t, "base"), field(t, "profile")
	task.Prompt, _ = value[string](r, t, "prompt", "text in quotes")
	r.texts(t, "submodules", true, func(text string) error {
		u, user, err := httpsURL(text)
		if err == nil && (user != nil || u.Path == "/") {
			err = errors.New("want the URL of a repository without a user")
		}
		task.Submodules = append(task.Submodules, u)
		return err
	})
	task.Timeout = r.duration(t, "timeout", time.Second, maxTimeout, defaultTimeout)
	if t.has("model") {
		if name, ok := t.values["model"].(string); ok && !strings.Contains(name, "/") {
			task.Model.Name = name
		} else {
			task.Model.Role = r.role(t, "model")
		}
	}
	forge, coordinator := r.sub(t, "forge"), r.sub(t, "coordinator")
	r.keys(forge, "kind", "api", "credential")
	r.keys(coordinator, "url", "credential")
	task.Forge.Credential, task.Coordinator.Credential = field(forge, "credential"),
		field(coordinator, "credential")
	task.Forge.Kind = field(forge, "kind")
	for key, err := range task.fill(field(t, "repo"), field(forge, "api"), field(coordinator, "url")) {
		r.fail(key, "", "%s: %v", key, err)
	}
	return task, syntax.Report(source, text, r.errs)
}

// TaskOf returns the task of environment variables: TASK_ID, REPO_URL, BRANCH, PROMPT,
// CLAUDE_API_KEY, COORDINATOR_URL, WORKER_SECRET, TIMEOUT_MS and MODEL. The key, the secret and the
// user of the URL are names of credentials, not the secrets themselves.
func TaskOf(getenv func(string) string) (Task, error) {
	task := Task{ID: getenv("TASK_ID"), Branch: getenv("BRANCH"), Prompt: getenv("PROMPT"),
		Timeout: defaultTimeout,
		Model:   TaskModel{Name: getenv("MODEL"), Key: getenv("CLAUDE_API_KEY")}}
	task.Coordinator.Credential = getenv("WORKER_SECRET")
	if model, ok := strings.CutPrefix(task.Model.Name, "anthropic/"); ok {
		task.Model.Name, task.Model.Role = "", providers["anthropic"]
		task.Model.Role.Model = model
	}
	if text := getenv("TIMEOUT_MS"); text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		task.Timeout = time.Duration(ms) * time.Millisecond
		if err != nil || task.Timeout < time.Second || task.Timeout > maxTimeout {
			return task, fmt.Errorf("TIMEOUT_MS is no number of milliseconds from 1000 to %d",
				maxTimeout.Milliseconds())
		}
	}
	names := map[string]string{"id": "TASK_ID", "repo": "REPO_URL", "branch": "BRANCH",
		"prompt": "PROMPT", "coordinator.url": "COORDINATOR_URL", "key": "CLAUDE_API_KEY",
		"coordinator.credential": "WORKER_SECRET", "credential": "REPO_URL"}
	for key, err := range task.fill(getenv("REPO_URL"), "", getenv("COORDINATOR_URL")) {
		if names[key] != "" {
			key = names[key]
		}
		return task, fmt.Errorf("%s: %w", key, err)
	}
	return task, nil
}

// credentialName matches names of credentials. A longer text is probably a secret itself.
var credentialName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$`)

// branchName matches a subset of the names that git check-ref-format accepts.
var branchName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*$`)

// fill parses the URLs, sets fields that they imply and returns errors by key, without secrets.
func (t *Task) fill(repo, api, coordinator string) map[string]error {
	wrong := map[string]error{}
	if id.Check(t.ID) != nil {
		// Allow ids of issue trackers, such as PROJ-123.
		wrong["id"] = errors.New("want 1 to 64 letters, digits, ., - and _, of which the first is a " +
			"letter or digit")
	}
	for key, name := range map[string]*string{"branch": &t.Branch, "base": &t.Base} {
		if (*name != "" || key == "branch") && (!branchName.MatchString(*name) || len(*name) > 200 ||
			strings.HasSuffix(*name, ".lock") || strings.Contains(*name, ".lock/")) {
			wrong[key] = fmt.Errorf("%.80q is no name of a branch, such as agent/task-123", *name)
		}
	}
	switch {
	case strings.TrimSpace(t.Prompt) == "":
		wrong["prompt"] = errors.New("it is missing")
	case len(t.Prompt) > maxPrompt:
		wrong["prompt"] = fmt.Errorf("it is larger than %s", policy.Bytes.Format(maxPrompt))
	}
	var err error
	var user *url.Userinfo
	if t.Repo, user, err = httpsURL(repo); err != nil {
		wrong["repo"] = err
	} else if t.Repo.Path == "/" {
		wrong["repo"] = errors.New("the URL names no repository")
	}
	if _, secret := user.Password(); secret {
		wrong["repo"] = errors.New("it holds a password: name a credential of fetch.toml as its user")
	} else if user != nil {
		t.Credential = user.Username()
	}
	if coordinator != "" {
		if t.Coordinator.URL, user, err = httpsURL(coordinator); err == nil && user != nil {
			err = errors.New("it holds a user")
		}
		if err != nil {
			wrong["coordinator.url"] = err
		}
	}
	t.fillForge(api, wrong)
	for key, name := range map[string]string{"credential": t.Credential, "key": t.Model.Key,
		"forge.credential": t.Forge.Credential, "coordinator.credential": t.Coordinator.Credential} {
		if name != "" && (!credentialName.MatchString(name) || redact.IsSecret(name)) {
			wrong[key] = errors.New("it is no name of a credential of fetch.toml; a secret itself is " +
				"not taken")
		}
	}
	if t.Profile == "" {
		t.Profile = "worker"
	}
	return wrong
}

func (t *Task) fillForge(api string, wrong map[string]error) {
	if t.Repo == nil {
		return
	}
	f := &t.Forge
	onGitHub := t.Repo.Hostname() == "github.com"
	if f.Kind == "" && onGitHub {
		f.Kind = gitHub
	}
	switch f.Kind {
	case NoForge:
		return
	case gitHub, Gitea:
	case "":
		// No pull requests at unknown hosts.
		f.Kind = NoForge
		return
	default:
		wrong["forge.kind"] = fmt.Errorf("%.40q is none of github, gitea and none", f.Kind)
		return
	}
	if f.Credential == "" {
		f.Credential = t.Credential
	}
	if api == "" {
		api = t.Repo.Scheme + "://" + t.Repo.Host
		if onGitHub {
			api = "https://api.github.com"
		}
	}
	var user *url.Userinfo
	var err error
	if f.API, user, err = httpsURL(api); err == nil && user != nil {
		err = errors.New("it holds a user")
	}
	if err != nil {
		wrong["forge.api"] = err
	}
	if len(strings.Split(strings.Trim(t.Repo.Path, "/"), "/")) != 2 {
		wrong["repo"] = fmt.Errorf("want https://HOST/OWNER/NAME for a forge of the kind %s", f.Kind)
	}
}

// repoPath matches URL paths without special characters of a shell, git or policy patterns.
var repoPath = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?$`)

// httpsURL parses an https URL and returns it without its user, and the user. No error quotes text,
// which may hold a secret.
func httpsURL(text string) (*url.URL, *url.Userinfo, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" ||
		u.Fragment != "" || !repoPath.MatchString(u.Path) || u.RawPath != "" {
		return nil, nil, errors.New("want a URL as https://HOST/PATH")
	}
	user := u.User
	// JoinPath does not add the slash of a URL without a path.
	u.User, u.Path = nil, "/"+strings.Trim(u.Path, "/")
	return u, user, nil
}
