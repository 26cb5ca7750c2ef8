package cgroup

import "testing"

func TestGroupOf(t *testing.T) {
	const hybrid = "9:memory:/\n1:name=systemd:/system.slice/jaild.service\n0::/elsewhere\n"
	for _, c := range []struct {
		name, text string
		layout     Layout
		want       string
	}{
		{"v2", "0::/system.slice/jaild.service\n", V2, "/system.slice/jaild.service"},
		{"v2, a group of its own", "0::/system.slice/jaild.service/daemon\n", V2, "/system.slice/jaild.service/daemon"},
		{"hybrid", hybrid, Hybrid, "/system.slice/jaild.service"},
		{"the root", "0::/\n", V2, ""},
		{"outside of the name space", "0::/../../user.slice\n", V2, ""},
		{"not under systemd", "9:memory:/\n0::/x\n", V1, ""},
		{"nothing", "", V2, ""},
	} {
		got, err := groupOf(c.text, c.layout)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}
