package denials

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/landlock"
)

const childEnv = "JAIL_DENIALS_TEST_CHILD"

// TestMain is also the process that restricts itself: it waits for a line, and executes a shell for
// what follows.
func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var domains []jail.Landlock
	err := json.Unmarshal([]byte(text), &domains)
	runtime.LockOSThread()
	for _, l := range domains {
		if err == nil {
			err = landlock.RestrictThread(l)
		}
	}
	if err == nil {
		os.Stdout.WriteString("restricted\n")
		_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	}
	if err == nil {
		err = sys.Exec("/bin/sh", []string{"sh", "-c", os.Args[1]}, nil)
	}
	os.Stderr.WriteString(err.Error())
	os.Exit(1)
}

// TestKernel: of two domains around a program, each refusal is reported and counted for the domain
// that made it. A domain that does not request reports refuses the same and reports nothing.
func TestKernel(t *testing.T) {
	jailtest.NeedAudit(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var rules []jail.LandlockRule
	for _, path := range []string{"/bin", "/lib", "/lib64", "/usr", "/etc", "/dev", "/proc"} {
		if _, err := os.Stat(path); err == nil {
			rules = append(rules, jail.LandlockRule{Path: path, Exec: true, Write: path == "/dev"})
		}
	}
	for _, d := range []string{"both", "outer", "inner"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// domain grants two of the three directories.
	domain := func(told bool, grants ...string) jail.Landlock {
		l := jail.Landlock{MinABI: 1, Told: told, Rules: rules}
		for _, g := range grants {
			l.Rules = append(l.Rules[:len(l.Rules):len(l.Rules)],
				jail.LandlockRule{Path: filepath.Join(dir, g), Write: true})
		}
		return l
	}
	script := "cd " + dir + "; ls both; ls inner; ls inner; ls outer; echo >new; ls neither; exit 0"
	for name, c := range map[string]struct {
		domains []jail.Landlock
		want    map[string]int64
	}{
		"two domains": {[]jail.Landlock{domain(true, "both", "outer"), domain(true, "both",
			"inner")},
			map[string]int64{"read_dir " + dir + "/inner": 2, "read_dir " + dir + "/outer": 1,
				"make_reg " + dir: 1}},
		"the outer one alone tells": {[]jail.Landlock{domain(true, "both", "outer"),
			domain(false, "both", "inner")},
			map[string]int64{"read_dir " + dir + "/inner": 2}},
		"none tells": {[]jail.Landlock{domain(false, "both", "outer"),
			domain(false, "both", "inner")}, map[string]int64{}},
		"no domain": {nil, map[string]int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := Start()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			text, err := json.Marshal(c.domains)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/proc/self/exe", script)
			cmd.Env = append(os.Environ(), childEnv+"="+string(text))
			cmd.Stderr = os.Stderr
			in, inErr := cmd.StdinPipe()
			out, outErr := cmd.StdoutPipe()
			if inErr != nil || outErr != nil || cmd.Start() != nil {
				t.Fatal(inErr, outErr)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "restricted\n" {
				t.Errorf("the child says %q, %v", line, err)
			}
			j := w.Follow(cmd.Process.Pid, 0, 1, len(c.domains))
			if _, err := in.Write([]byte("go\n")); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			list, atLeast := j.End(long)
			if got := counts(list); !reflect.DeepEqual(got, c.want) || atLeast {
				t.Errorf("%v, at least: %v; want %v", got, atLeast, c.want)
			}
			for _, r := range list {
				if r.Count > 0 && r.What != "" && (r.First.IsZero() || r.Last.Before(r.First)) {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}
