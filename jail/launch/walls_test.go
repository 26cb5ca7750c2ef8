package launch_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/landlock"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

var update = flag.Bool("update", false, "write docs/walls.md as it was found")

// A wall is one layer of the stack, as far as an attack meets it.
type wall string

const (
	inner    wall = "inner filter"
	outer    wall = "outer filter"
	domain   wall = "Landlock"
	caps     wall = "capabilities"
	netns    wall = "net namespace"
	pidns    wall = "pid namespace"
	ipcns    wall = "ipc namespace"
	utsns    wall = "uts namespace"
	cgroupns wall = "cgroup namespace"
	mount    wall = "mount"
	group    wall = "control group"
	rlimit   wall = "rlimit"
	counts   wall = "counts of the user namespace"
)

// An attack is system calls, the walls that it meets, and what the kernel answers when all of these
// are away: through. What is not "ok" there is an answer of a kernel that has gone as far as
// looking at the arguments, or of a wall that no plan can take away.
type attack struct {
	name    string
	calls   func(h *host) []victim.Call
	walls   []wall
	through string
	// Those that the wall keeps away.
	caps []string
	// Walls that are limits or flags of this attack's own.
	weaken map[wall]func(s *jail.Plan)
	// "ok" or what was answered; nil: the first error of the calls
	judge func([]victim.Result) string
	// What it needs on the host.
	prepare func(t *testing.T, h *host)
	// Version of Landlock that the wall needs.
	abi int
	// Version of Landlock from which its domain is a wall of the row, too.
	since int
	// What some kernels answer by themselves before anything of ours is asked: then there is
	// nothing to see.
	itself string
	// Names for the filters, where the calls' own are not enough.
	filters []string
}

// A host is what an attack is aimed at.
type host struct {
	*jailtest.Setup
	// A listener on the host's 127.0.0.1.
	port int
	// Name of a listener's abstract socket.
	socket string
	// A process of the host with the tool's own uid.
	pid int
	// Key of a System V segment that everybody may use.
	segment int
}

// TestWalls lets every attack meet the whole stack, then each of its walls alone, then none. So
// each wall is seen to hold by itself, and the attack is seen to work, but for that wall.
func TestWalls(t *testing.T) {
	jailtest.Require(t)
	abi, err := landlock.ABI()
	if err != nil {
		t.Fatal(err)
	}
	whole := true
	var table strings.Builder
	table.WriteString(walltableHead)
	for _, a := range attacks {
		t.Run(strings.ReplaceAll(a.name, "/", "_"), func(t *testing.T) {
			if a.abi > abi {
				whole = false
				t.Skipf("landlock version %d: the wall needs %d", abi, a.abi)
			}
			if a.since > 0 && abi >= a.since {
				// The table is that of a kernel that has not come so far.
				whole = false
				a.walls = append(slices.Clone(a.walls), domain)
			}
			full := a.meet(t, nil)
			if full == "ok" || full == a.through {
				t.Errorf("the whole stack: %s", full)
			}
			var alone []string
			for _, w := range a.walls {
				answer := a.meet(t, without(a.walls, w))
				if answer == a.through {
					t.Errorf("%s alone: %s", w, answer)
				}
				alone = append(alone, fmt.Sprintf("%s %s", w, answer))
			}
			none := a.meet(t, a.walls)
			if none == a.itself && a.itself != "" {
				whole = false
				t.Skipf("this kernel refuses it by itself: %s", none)
			}
			if none != a.through {
				t.Errorf("without %v: %s, want %s: the test could not have seen it work", a.walls,
					none, a.through)
			}
			fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", a.name, full, strings.Join(alone, ", "),
				none)
		})
	}
	table.WriteString(onlySummary(t))
	if t.Failed() || !whole {
		return
	}
	golden(t, filepath.Join("..", "..", "docs", "walls.md"), table.String())
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	wanted := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wanted) || line != wanted[i] {
			t.Errorf("%s: line %d is now\n%s\ngo test -run 'TestWalls$' -update writes it", path,
				i+1, line)
		}
	}
}

func without(all []wall, one wall) []wall {
	return slices.DeleteFunc(slices.Clone(all), func(w wall) bool { return w == one })
}

// meet runs the attack in a fresh jail of which those layers are taken away, and says how it went.
func (a attack) meet(t *testing.T, away []wall) string {
	t.Helper()
	answer := "not run"
	t.Run(fmt.Sprintf("without %v", away), func(t *testing.T) {
		h := &host{Setup: jailtest.New(t)}
		for _, w := range away {
			a.remove(t, h, w)
		}
		if a.prepare != nil {
			a.prepare(t, h)
		}
		j := h.Start(t)
		results, err := j.Try(a.calls(h)...)
		if err != nil {
			answer = a.ended(t, j, err)
			return
		}
		judge := a.judge
		if judge == nil {
			judge = firstError
		}
		answer = judge(results)
	})
	return answer
}

// ended says how an attack ended the jail.
func (a attack) ended(t *testing.T, j *jailtest.Jail, err error) string {
	t.Helper()
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err,
		syscall.EPIPE) {
		t.Fatal(err)
	}
	status, err := j.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if status.Signal != 0 {
		return syscallName(syscall.Signal(status.Signal))
	}
	if status.Code == 42 {
		// The probe was executed anew.
		return "ok"
	}
	return fmt.Sprintf("exit %d", status.Code)
}

func syscallName(s syscall.Signal) string {
	return map[syscall.Signal]string{syscall.SIGKILL: "killed", syscall.SIGSYS: "SIGSYS"}[s]
}

func firstError(results []victim.Result) string {
	for _, r := range results {
		if r.Errno != "" {
			return r.Errno
		}
	}
	return "ok"
}

func (a attack) remove(t *testing.T, h *host, w wall) {
	t.Helper()
	p := &h.Plan
	if own := a.weaken[w]; own != nil {
		own(p)
		return
	}
	switch w {
	case inner:
		allow(&p.InnerFilter, a.names(h))
	case outer:
		allow(&p.OuterFilter, a.names(h))
	case domain:
		h.WithoutLandlock(t)
	case caps:
		p.Capabilities = a.caps
	case netns, ipcns, cgroupns:
		leaveOut(p, w)
	case utsns:
		leaveOut(p, w)
		p.Hostname = ""
	default:
		t.Fatalf("%s: nobody says how to take it away", w)
	}
}

func leaveOut(p *jail.Plan, w wall) {
	kind, _, _ := strings.Cut(string(w), " ")
	p.Namespaces = slices.DeleteFunc(p.Namespaces,
		func(n jail.Namespace) bool { return string(n) == kind })
}

func (a attack) names(h *host) []string {
	if a.filters != nil {
		return a.filters
	}
	var names []string
	for _, c := range a.calls(h) {
		if !strings.HasPrefix(c.Name, "=") {
			names = append(names, c.Name)
		}
	}
	return names
}

// allow takes calls out of a filter.
func allow(f *seccomp.Filter, names []string) {
	f.Allow = append(slices.Clone(f.Allow), names...)
	slices.Sort(f.Allow)
	f.Allow = slices.Compact(f.Allow)
	f.Only = slices.DeleteFunc(slices.Clone(f.Only),
		func(c seccomp.Condition) bool { return slices.Contains(names, c.Call) })
	for _, absent := range []*[]string{&f.ENOSYS, &f.ENOTSUP, &f.EINVAL} {
		*absent = slices.DeleteFunc(slices.Clone(*absent),
			func(n string) bool { return slices.Contains(names, n) })
	}
}
