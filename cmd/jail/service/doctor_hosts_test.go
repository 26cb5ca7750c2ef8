package service_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A host that lacks something: doctor names it and says what to do, and run refuses in the same
// words. A host that is only unusual is not refused.
func TestDoctorAndRunAgree(t *testing.T) {
	without := cmdtest.Must(cmdtest.WithoutProgram())(t)
	inject := cmdtest.Must(cmdtest.InjectProgram())(t)
	for _, c := range []struct {
		name   string
		prefix []string
		// What doctor finds missing; "" for nothing.
		layer string
	}{
		{"control", []string{without, "--"}, ""},
		{"no user namespaces", []string{without, "-no-userns", "--"}, "user namespaces"},
		{"no user namespaces by user.max_user_namespaces",
			[]string{without, "-no-userns", "-userns-errno", "ENOSPC", "--"}, "user namespaces"},
		{"no user namespaces by a security module",
			[]string{without, "-no-userns", "-userns-errno", "EACCES", "--"}, "user namespaces"},
		{"no landlock", []string{without, "-deny", "landlock_create_ruleset=ENOSYS", "--"},
			"landlock"},
		{"landlock not in the list of modules",
			[]string{without, "-deny", "landlock_create_ruleset=EOPNOTSUPP", "--"}, "landlock"},
		{"landlock refused", []string{without, "-deny", "landlock_create_ruleset=EACCES", "--"},
			"landlock"},
		{"filters refused", []string{without, "-deny", "seccomp=EACCES", "--"}, "seccomp"},
		{"overlayfs refused", []string{inject, "-match", " fsopen overlay$", "-n", "0", "-errno",
			"EACCES", "-record", os.DevNull, "--"}, "overlayfs"},
		{"id-mapped mounts refused", []string{without, "-deny", "mount_setattr=EACCES", "--"},
			"shadow workspaces"},
		{"copies of mounts refused", []string{without, "-deny", "open_tree=EPERM", "--"},
			"shadow workspaces"},
		{"no filters", []string{without, "-deny", "seccomp=EINVAL", "--"}, "seccomp"},
		{"no user notification", []string{without, "-no-listener", "--"}, "seccomp"},
		{"no control groups", []string{without, "-no-cgroups", "--"}, "control groups"},
		{"read-only control groups", []string{without, "-ro", "/sys", "--"}, "control groups"},
		{"no overlayfs", []string{inject, "-match", " fsopen overlay$", "-n", "0", "-errno",
			"ENODEV", "-record", os.DevNull, "--"}, "overlayfs"},
		{"no loop devices", []string{without, "-no-loop", "--"}, "loop devices"},
		{"no mkfs", []string{without, "-tmpfs", "/usr/sbin=mode=0755", "--"}, "mkfs.ext4"},
		{"no id-mapped mounts", []string{without, "-deny", "mount_setattr=EINVAL", "--"},
			"shadow workspaces"},
		{"a /tmp without exec", []string{without, "-noexec", "/tmp", "--"}, ""},
		{"hidepid", []string{without, "-hidepid", "--"}, ""},
		{"control groups of version 1 only", []string{without, "-no-unified", "--"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := cmdtest.New(t)
			if c.name == "control groups of version 1 only" {
				if _, err := os.Stat("/sys/fs/cgroup/unified/cgroup.procs"); err != nil {
					t.Skip("this host has no hybrid hierarchy to take it from")
				}
			}
			// The state directory is there for both.
			h.Wants(h.Jail("workspaces"), 0, "")
			bin := h.Bin
			// Where they are installed, which is not there; nor need the tree be elsewhere.
			if slices.Contains(c.prefix, "-noexec") {
				bin = cmdtest.Must(os.MkdirTemp("/var/tmp", "jail-bin-"))(t)
				t.Cleanup(func() { os.RemoveAll(bin) })
				if out, err := exec.Command("cp", "-R", h.Bin+"/.",
					bin).CombinedOutput(); err != nil {
					t.Fatalf("cp: %v: %s", err, out)
				}
			}
			command := func(args ...string) cmdtest.Outcome {
				all := slices.Concat(c.prefix, []string{filepath.Join(bin, "jail")}, args)
				return h.Run(h.Program(all[0], all[1:]...))
			}
			doctor := command("doctor", "--json")
			var said struct {
				OK       bool
				Findings []struct{ Name, Answer, Detail, Fix string }
			}
			if err := json.Unmarshal([]byte(doctor.Out), &said); err != nil {
				t.Fatalf("%v: %+v", err, doctor)
			}
			run := command("run", "--commit", "--", "touch", "ran")
			_, err := os.Stat(filepath.Join(h.Work, "ran"))
			if c.layer == "" {
				for _, f := range said.Findings {
					if f.Answer == "no" {
						t.Errorf("doctor: %+v", f)
					}
				}
				if run.Code != 0 || err != nil {
					t.Errorf("run: %+v, %v", run, err)
				}
				h.Discard(h.Kept()...)
				return
			}
			if doctor.Code != 1 || said.OK || err == nil {
				t.Errorf("doctor ends with %d; did the tool run? %v", doctor.Code, err)
			}
			h.Wants(run, 126, "")
			if !cmdtest.Sentence.MatchString(run.Err) {
				t.Errorf("run: %s", run.Err)
			}
			named := false
			for _, f := range said.Findings {
				if f.Answer != "no" || f.Name != c.layer {
					continue
				}
				named = true
				want := "layer " + f.Name + " cannot be set up here: " + f.Detail +
					"\njail: hint: " + f.Fix + "; jail doctor says"
				if !strings.Contains(run.Err, want) {
					t.Errorf("run says\n%sand doctor\n%s", run.Err, want)
				}
			}
			if !named {
				t.Errorf("doctor does not name %s: %+v", c.layer, said.Findings)
			}
		})
	}
}
