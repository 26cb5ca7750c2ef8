package cmd_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A doctorSaid is the answer of jail doctor --json.
type doctorSaid struct {
	OK       bool
	Daemon   string
	Findings []struct{ Name, Answer, Detail, Fix string }
}

func readDoctor(t *testing.T, o outcome) (d doctorSaid) {
	t.Helper()
	if err := json.Unmarshal([]byte(o.out), &d); err != nil {
		t.Fatalf("%v: %+v", err, o)
	}
	return d
}

// answer is what was found of one thing, "" if nothing was.
func (d doctorSaid) answer(name string) string {
	for _, f := range d.Findings {
		if f.Name == name {
			return f.Answer
		}
	}
	return ""
}

// TestDoctorAsksTheDaemon: a daemon can be refused what a shell of root's on the same host is not,
// as a service is by DeviceAllow=. Doctor says what the daemon finds, and run refuses in its words.
func TestDoctorAsksTheDaemon(t *testing.T) {
	h := newHost(t)
	control := readDoctor(t, h.jail("doctor", "--json"))
	if got := control.answer("loop devices"); got != "yes" {
		t.Fatalf("without a daemon: loop devices %q", got)
	}
	h.daemonOf(exec.Command(must(withoutProgram())(t), "-no-loop", "--",
		filepath.Join(h.bin, "jaild")), nil)
	o := h.jail("doctor", "--json")
	d := readDoctor(t, o)
	if o.code != 1 || d.OK || d.answer("loop devices") != "no" {
		t.Errorf("doctor ends with %d: %+v", o.code, d)
	}
	h.wants(h.jail("run", "--", "touch", "made"), 126, "layer loop devices cannot be set up here")
}

// TestDoctorOfUsers: for a user who may not connect doctor says what a run says, and what to do.
// For one who may, it ends with 0 where root's does.
func TestDoctorOfUsers(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	roots := h.jail("doctor", "--json")
	doctor := func() outcome { return h.run(as(h.command("doctor", "--json"), stranger)) }

	h.wants(h.run(as(h.command("run", "--", "true"), stranger)), 126, "permission denied")
	o := doctor()
	said := readDoctor(t, o)
	if o.code != 1 || said.answer("daemon") != "no" || strings.Contains(o.out, "private one;") ||
		!strings.Contains(o.out, "usermod -aG jail") {
		t.Errorf("a user who may not connect: %+v", o)
	}
	d.admit()
	o = doctor()
	if readDoctor(t, roots).OK != readDoctor(t, o).OK || o.code != roots.code {
		t.Errorf("root: %+v\na user who may connect: %+v", roots, o)
	}
}
