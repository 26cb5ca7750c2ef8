package run_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A kernel without one of the layers: no run starts with less than its plan, the layer is named,
// and nothing stays.
func TestLayerMissing(t *testing.T) {
	without := cmdtest.Must(cmdtest.WithoutProgram())(t)
	for _, c := range []struct {
		name  string
		args  []string
		layer string // what the sentence says
	}{
		{"landlock not built in", []string{"-deny", "landlock_create_ruleset=ENOSYS"},
			"layer landlock cannot be set up here"},
		{"landlock disabled at boot", []string{"-deny", "landlock_create_ruleset=EOPNOTSUPP"},
			"layer landlock cannot be set up here"},
		{"user namespaces", []string{"-no-userns"}, "layer user namespace"},
		{"clones of mounts", []string{"-deny", "open_tree=ENOSYS"}, "open_tree"},
		{"id-mapped mounts", []string{"-deny", "mount_setattr=ENOSYS"}, "mount_setattr"},
		{"id-mapped mounts of this file system", []string{"-deny", "mount_setattr=EINVAL"},
			"mount_setattr"},
		{"detached mounts", []string{"-deny", "fsopen=ENOSYS"}, "fsopen"},
		{"detached mounts attach", []string{"-deny", "move_mount=EPERM"}, "move_mount"},
		{"a new root", []string{"-deny", "pivot_root=EPERM"}, "pivot_root"},
		{"control groups", []string{"-no-cgroups"}, "layer control groups cannot be set up here"},
		{"loop devices", []string{"-no-loop"},
			"layer loop devices cannot be set up here: there is no /dev/loop-control"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := cmdtest.New(t)
			args := append(c.args, "--", filepath.Join(h.Bin, "jail"), "run", "--commit", "--",
				"touch", "ran")
			o := h.Run(h.Program(without, args...))
			if _, err := os.Stat(filepath.Join(h.Work, "ran")); err == nil {
				t.Error("the tool ran")
			}
			h.Wants(o, 126, c.layer)
			if !regexp.MustCompile(`\njail: hint: .*jail doctor`).MatchString(o.Err) {
				t.Errorf("no hint at jail doctor: %s", o.Err)
			}
		})
	}
	// What only jail-init finds out is no exit code of the tool's either. Who says so first depends
	// on how far the shim was.
	t.Run("landlock refuses", func(t *testing.T) {
		h := cmdtest.New(t)
		for _, tool := range []string{h.Probe, "touch"} { // compiled already, and not
			o := h.Run(h.Program(without, "-deny", "landlock_restrict_self=EPERM", "--",
				filepath.Join(h.Bin, "jail"), "run", "--", tool))
			if o.Code != 126 || o.Out != "" ||
				!regexp.MustCompile(
					`^jail: error: layer (landlock|shim) cannot be set up here: `).MatchString(
					o.Err) {
				t.Errorf("%s: %+v", tool, o)
			}
		}
	})
	t.Run("control", func(t *testing.T) {
		h := cmdtest.New(t)
		o := h.Run(h.Program(without, "--", filepath.Join(h.Bin, "jail"), "run", "--commit", "--",
			"touch", "ran"))
		if _, err := os.Stat(filepath.Join(h.Work, "ran")); o.Code != 0 || err != nil {
			t.Errorf("%+v, %v", o, err)
		}
		h.Discard(h.Kept()...)
	})
}
