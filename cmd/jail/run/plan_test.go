package run

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
)

func TestWritePlan(t *testing.T) {
	p := jail.Plan{ID: "r1", Policy: "sha256:00", Cgroup: jail.Cgroup{Path: "/jail/r1",
		Memory: 256 << 20, CPUQuota: 150, CPUPeriod: 100, PIDs: 32},
		Namespaces: []jail.Namespace{"user", "net"}, IDs: jail.IDs{Base: 100, Size: 50, UID: 1,
			GID: 2}, NoNewPrivileges: true,
		Mounts: []jail.Mount{{Kind: jail.MountTmpfs, Target: "/tmp", Write: true, Size: 1 << 20,
			Files: 10}, {Kind: jail.MountBind, Source: "/usr", Target: "/usr", Exec: true}},
		Workspace: &jail.Workspace{Source: "/home/\x1b", Target: "/workspace", Shadow: true,
			Bytes: 1 << 20, Files: 3},
		Landlock: jail.Landlock{MinABI: 1, Rules: []jail.LandlockRule{{Path: "/tmp", Write: true}}},
		Rlimits:  []jail.Rlimit{{Name: "core"}}, Command: jail.Command{Tool: "core-utils/true",
			Args: []string{"true"}}}
	var out bytes.Buffer
	writePlan(&out, p)
	for _, want := range []string{"memory 256 MiB, cpu 1.5, tasks 32", "100 to 149 on the host",
		"mounts        /tmp  tmpfs, read, write, at most 1 MiB and 10 files\n",
		"\n              /usr  bind, read, execute, from /usr\n",
		`a shadow of /home/\x1b, at most 1 MiB and 3 files`, "capabilities  none\n",
		"variables     none\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
