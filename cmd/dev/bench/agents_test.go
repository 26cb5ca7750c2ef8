package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The measurement of agents ends with the daemon's error where no daemon starts.
func TestAgentsNeedADaemon(t *testing.T) {
	b := &agentBed{bin: t.TempDir(), dir: t.TempDir()}
	for _, tt := range []struct{ script, want string }{
		{"echo \"jail: error: bundles: it is a link, $JAIL_STATE\" >&2; exit 125",
			"jail: error: bundles: it is a link, " + b.dir},
		{"exit 0", ""},
	} {
		if err := os.WriteFile(filepath.Join(b.bin, "jail"), []byte("#!/bin/sh\n"+tt.script+"\n"),
			0o755); err != nil {
			t.Fatal(err)
		}
		err := b.daemonStarts(t.Context())
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.script, err, tt.want)
		}
	}
}
