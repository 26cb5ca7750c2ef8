//go:build league

package league

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/cgroup"
)

const head = `# The league table

` + "`make league`" + ` writes this page. One program makes each attack in jail and in comparable sandboxes, each with hardened settings, which are listed below. Every
attack gets a fresh sandbox, and each sandbox runs inside of a disposable one, so that an attack that works does no harm.

A cell is the result of the attack. **Bold** means that the attack went through: it worked, or the kernel accepted the call and read the arguments, which are
invalid on purpose if valid ones could do harm. The first column is the control, as root without a sandbox. *own kernel* means that gVisor's kernel
executed the call, and the host's kernel did not.

An attack that went through is not an escape: a socket in an empty network namespace reaches nothing, but it is kernel code that an attacker can call. And a
sandbox that permits more can run more programs.

`

// whatElse has properties that are not measured, from the documents of each project.
const whatElse = `
## Other properties

Not measured: from the documents of each project.

| | bubblewrap | firejail | runc, crun | gVisor | jail |
|---|---|---|---|---|---|
| started by an ordinary user | yes | yes, as a set-user-id program | yes | yes, for tests | yes, [without root](rootless.md) |
| programs of the host | yes | yes | yes, from an image | yes, most | yes, if a [profile](native.md) grants them; else WebAssembly |
| a terminal inside | yes | yes | yes | yes | yes |
| a graphics card | yes | yes | yes | some | **no** |
| desktop programs, with profiles for them | as Flatpak | yes | no | no | **no** |
| OCI images, orchestrators | no | no | yes | yes | **no** |
| other processors than amd64 | yes | yes | yes | arm64 | **no** |
| in wide use for years | yes | yes | yes | yes | **no** |
| filters, limits and mounts from one policy file | no | a profile | the engine's | the engine's | yes |
| changes are reviewed before they are written | no | no | no | no | yes |
| refused operations are recorded | no | syslog | no | a log | yes |
`

func document(t *testing.T, outcomes map[string]outcome) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(head)
	b.WriteString(machine(t))
	var columns []sandbox
	for _, s := range sandboxes {
		if o, ok := outcomes[s.name]; ok && o.Refused == "" {
			columns = append(columns, s)
		}
	}
	b.WriteString("\n| attack |")
	for _, s := range columns {
		b.WriteString(" " + s.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	group, through := "", map[string]int{}
	for _, a := range attacks {
		if a.group != group {
			group = a.group
			fmt.Fprintf(&b, "| *%s* |%s\n", group, strings.Repeat(" |", len(columns)))
		}
		fmt.Fprintf(&b, "| %s |", a.name)
		for _, s := range columns {
			got := outcomes[s.name].Answers[a.name]
			switch {
			case got.Stopped:
				fmt.Fprintf(&b, " %s |", got.Text)
			case s.name == "gVisor" && a.ownKernel():
				fmt.Fprintf(&b, " *own kernel* |")
			default:
				through[s.name]++
				fmt.Fprintf(&b, " **%s** |", got.Text)
			}
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "| went through, of %d |", len(attacks))
	for _, s := range columns {
		fmt.Fprintf(&b, " %d |", through[s.name])
	}
	fmt.Fprintf(&b, "\n| start and end of a program that does nothing, median of %d, ms |", starts)
	for _, s := range columns {
		fmt.Fprintf(&b, " %.1f |", outcomes[s.name].Startup)
	}
	b.WriteString(
		"\n\njail's time is that of a `jail run` that starts a daemon of its own, runs a compiled WebAssembly module and writes its record; [bench.md](bench.md) has\n" +
			"the times with a running daemon. Do not compare times of two such tables: the load " +
			"differs.\n")
	b.WriteString(whatElse)
	b.WriteString("\n## Settings\n")
	for _, s := range sandboxes {
		o := outcomes[s.name]
		if s.name == control {
			continue
		}
		fmt.Fprintf(&b, "\n**%s**", s.name)
		if o.Version != "" {
			fmt.Fprintf(&b, " (%s)", o.Version)
		}
		if o.Refused != "" {
			fmt.Fprintf(&b, " did not run: %s.\n", o.Refused)
			continue
		}
		fmt.Fprintf(&b, ". %s\n", s.why)
		for _, n := range o.Notes {
			fmt.Fprintf(&b, "%s\n", n)
		}
		fmt.Fprintf(&b, "\n    %s\n", o.Command)
	}
	return b.String()
}

// ownKernel reports whether gVisor answers the call by itself: what it does to files of the host
// and what it uses of the machine is real.
func (a attack) ownKernel() bool {
	switch a.group {
	case limits:
		return false
	case files:
		return strings.HasPrefix(a.name, "execute") || strings.Contains(a.name, "in memory") ||
			strings.Contains(a.name, "by handle")
	}
	return !strings.Contains(a.name, "of the host") && !strings.Contains(a.name, "the host's")
}

func machine(t *testing.T) string {
	t.Helper()
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		t.Fatal(err)
	}
	layout, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	_, name, _ := strings.Cut(string(release), "PRETTY_NAME=\"")
	name, _, _ = strings.Cut(name, "\"")
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("Machine: Linux %s, control groups %s, %s. Load average at the end: %s.\n",
		strings.TrimSpace(string(kernel)), layout, name,
		strings.Join(strings.Fields(string(load))[:3], " "))
}
