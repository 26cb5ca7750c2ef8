package manifest

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestTask: a file and the environment make the same task of the same values, what is left out is
// filled in, and what is wrong is said without what may be a secret.
func TestTask(t *testing.T) {
	const least = "task = 1\nid = \"t-1\"\nrepo = \"https://forge@git.example.com/acme/web.git\"\n" +
		"branch = \"agent/t-1\"\nprompt = \"mend it\"\n"
	file, err := ParseTask("t.toml", []byte(least+"timeout = \"90s\"\nmodel = \"smart\"\n"+
		"[coordinator]\nurl = \"https://c.example.com\"\ncredential = \"c\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{"TASK_ID": "t-1", "PROMPT": "mend it", "BRANCH": "agent/t-1",
		"REPO_URL": "https://forge@git.example.com/acme/web.git", "TIMEOUT_MS": "90000",
		"MODEL": "smart", "COORDINATOR_URL": "https://c.example.com", "WORKER_SECRET": "c"}
	environment, err := TaskOf(func(name string) string { return variables[name] })
	if err != nil || !reflect.DeepEqual(environment, file) {
		t.Errorf("of the environment: %+v, %v; of the file: %+v", environment, err, file)
	}
	if file.Credential != "forge" || file.Repo.String() != "https://git.example.com/acme/web.git" ||
		file.Profile != "worker" || file.Forge.Kind != NoForge || file.Timeout != 90*time.Second ||
		file.Model.Name != "smart" || file.Coordinator.Credential != "c" {
		t.Errorf("%+v", file)
	}
	variables = map[string]string{"TASK_ID": "PROJ-1_a.b", "PROMPT": "mend it", "BRANCH": "agent/t-1",
		"REPO_URL": "https://forge@github.com/acme/web.git", "MODEL": "anthropic/m",
		"CLAUDE_API_KEY": "key"}
	environment, err = TaskOf(func(name string) string { return variables[name] })
	if err != nil || environment.ID != "PROJ-1_a.b" ||
		environment.Timeout != 30*time.Minute || environment.Coordinator.URL != nil ||
		environment.Model.Key != "key" || environment.Model.Role.Model != "m" ||
		environment.Model.Role.Form != "messages" || environment.Forge.Kind != "github" ||
		environment.Forge.API.String() != "https://api.github.com/" ||
		environment.Forge.Credential != "forge" {
		t.Errorf("%+v, %v", environment, err)
	}
	const modules = "submodules = [\"https://git.example.com/acme/lib.git\", \"https://b.org/x\"]\n"
	if task, err := ParseTask("t.toml", []byte(least+modules)); err != nil || len(task.Submodules) != 2 ||
		task.Submodules[0].Path != "/acme/lib.git" {
		t.Errorf("%+v, %v", task.Submodules, err)
	}
	const secret = "glpat-0123456789abcdef"
	for more, want := range map[string]string{
		"credential = \"" + secret + "\"\n":           "credential: it is no name of a credential",
		"[forge]\nkind = \"svn\"\n":                   "none of github, gitea and none",
		"[forge]\nkind = \"gitea\"\napi = \"x\"\n":    "want a URL as https://HOST/PATH",
		"base = \"a..b\"\n":                           "no name of a branch",
		"submodules = [\"../lib.git\"]\n":             "submodules: want a URL as https://HOST/PATH",
		"submodules = [\"https://me@b.org/x\"]\n":     "submodules: want the URL of a repository without a user",
		"[coordinator]\nurl = \"https://me@c.org\"\n": "it holds a user",
		"timeout = \"25h\"\n":                         "timeout",
	} {
		// The user of the URL would be the credential.
		text := strings.Replace(least, "forge@", "", 1) + more
		if _, err := ParseTask("t.toml", []byte(text)); err == nil ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %s", more, err, want)
		}
	}
	variables["TASK_ID"] = "../t"
	if _, err := TaskOf(func(name string) string { return variables[name] }); err == nil ||
		!strings.HasPrefix(err.Error(), "TASK_ID: want 1 to 64 letters") {
		t.Errorf("a task whose id is a path: %v", err)
	}
}
