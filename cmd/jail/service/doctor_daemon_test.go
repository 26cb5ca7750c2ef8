package service_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A doctorSaid is the answer of jail doctor --json.
type doctorSaid struct {
	OK       bool
	Daemon   string
	Findings []struct{ Name, Answer, Detail, Fix string }
}

func readDoctor(t *testing.T, o cmdtest.Outcome) (d doctorSaid) {
	t.Helper()
	if err := json.Unmarshal([]byte(o.Out), &d); err != nil {
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
	h := cmdtest.New(t)
	control := readDoctor(t, h.Jail("doctor", "--json"))
	if got := control.answer("loop devices"); got != "yes" {
		t.Fatalf("without a daemon: loop devices %q", got)
	}
	cmdtest.DaemonOf(h, exec.Command(cmdtest.Must(cmdtest.WithoutProgram())(t), "-no-loop", "--",
		filepath.Join(h.Bin, "jaild")), nil)
	o := h.Jail("doctor", "--json")
	d := readDoctor(t, o)
	if o.Code != 1 || d.OK || d.answer("loop devices") != "no" {
		t.Errorf("doctor ends with %d: %+v", o.Code, d)
	}
	h.Wants(h.Jail("run", "--", "touch", "made"), 126, "layer loop devices cannot be set up here")
}

// TestDoctorOfUsers: for a user who may not connect doctor says what a run says, and what to do.
// For one who may, it ends with 0 where root's does.
func TestDoctorOfUsers(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	roots := h.Jail("doctor", "--json")
	doctor := func() cmdtest.Outcome { return h.Run(cmdtest.As(h.Command("doctor", "--json"), cmdtest.Stranger)) }

	h.Wants(h.Run(cmdtest.As(h.Command("run", "--", "true"), cmdtest.Stranger)), 126, "permission denied")
	o := doctor()
	said := readDoctor(t, o)
	if o.Code != 1 || said.answer("daemon") != "no" || strings.Contains(o.Out, "private one;") ||
		!strings.Contains(o.Out, "usermod -aG jail") {
		t.Errorf("a user who may not connect: %+v", o)
	}
	d.Admit()
	o = doctor()
	if readDoctor(t, roots).OK != readDoctor(t, o).OK || o.Code != roots.Code {
		t.Errorf("root: %+v\na user who may connect: %+v", roots, o)
	}
}
