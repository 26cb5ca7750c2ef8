package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// Each line of help is asked for in the ways of runc, and is no error.
func TestHelp(t *testing.T) {
	h := cmdtest.New(t)
	for _, args := range [][]string{nil, {"--help"}, {"help"}, {"create", "--help"}, {"run", "-h"},
		{"exec", "--help"}, {"kill", "--help"}, {"ps", "--help"}, {"features", "--help"}} {
		o := h.Run(exec.Command(h.Bin+"/jail-oci", args...))
		if o.Code != 0 || o.Out != usage || o.Err != "" {
			t.Errorf("%q: %+v", args, o)
		}
	}
}

// A wrong command line is refused by name, and nothing of it is guessed.
func TestMisuse(t *testing.T) {
	h := cmdtest.New(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--nosuch", "list"}, 2, "-nosuch"},
		{[]string{"--log-format", "xml", "list"}, 2, `--log-format "xml": want text or json`},
		{[]string{"nosuch"}, 2, `there is no command "nosuch"`},
		{[]string{"update", "x"}, 2, "update is not supported"},
		{[]string{"list", "--format", "xml"}, 2, "want table or json"},
		{[]string{"ps", "-f", "xml", "x"}, 2, "want table or json"},
		{[]string{"state"}, 2, "0 arguments"},
		{[]string{"state", ""}, 2, `"" is no id`},
		{[]string{"state", "../x"}, 2, `"../x" is no id`},
		{[]string{"kill", "x", "NOSUCH"}, 2, "NOSUCH"},
		{[]string{"state", "nosuch"}, 1, "container does not exist"},
	} {
		o := h.Run(exec.Command(h.Bin+"/jail-oci", append([]string{"--root", t.TempDir()},
			c.args...)...))
		if o.Code != c.code || o.Out != "" || !strings.Contains(o.Err, c.want) {
			t.Errorf("%q: %+v", c.args, o)
		}
	}
}

// Without a log file standard error is the log, as for runc: engines read its JSON.
func TestLogFormat(t *testing.T) {
	h := cmdtest.New(t)
	log := t.TempDir() + "/log"
	for _, c := range []struct {
		args []string
		// json says that standard error is one JSON object.
		json bool
	}{
		{[]string{"--log-format", "json"}, true},
		{[]string{"--log-format", "text"}, false},
		{[]string{"--log-format", "json", "--log", log}, false},
	} {
		o := h.Run(exec.Command(h.Bin+"/jail-oci", append(append([]string{"--root", t.TempDir()},
			c.args...), "state", "nosuch")...))
		var line struct{ Level, Msg string }
		err := json.Unmarshal([]byte(o.Err), &line)
		if o.Code != 1 || o.Out != "" || c.json != (err == nil) ||
			!strings.Contains(o.Err, "container does not exist") || c.json && line.Level != "error" {
			t.Errorf("%q: %+v", c.args, o)
		}
	}
	if text, err := os.ReadFile(log); err != nil ||
		!strings.Contains(string(text), `"msg":"container does not exist"`) {
		t.Errorf("the log is %q, %v", text, err)
	}
	// Anybody may ask for the features.
	cmd := cmdtest.As(exec.Command(h.Bin+"/jail-oci", "features"), cmdtest.Stranger)
	if o := h.Run(cmd); o.Code != 0 || !strings.Contains(o.Out, `"ociVersionMax"`) {
		t.Errorf("features: %+v", o)
	}
}
