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

Written by ` + "`make league`" + `: the same program, one attack after the other, in jail and in the sandboxes that people compare it with, each at its usual
hardened settings, which are listed below. A fresh sandbox for each attack, and for each sandbox a throwaway around it, so that what succeeds harms nothing.

In the table is what the attack was answered; **bold** is an attack that went through: it did what it wanted, or the kernel took the call and went as far as
looking at the arguments, which are wrong on purpose where right ones could do harm. The first column, without any sandbox and as root, shows that the table can see
each attack work. Where gVisor lets a call through to its *own kernel* only, no line of the host's has seen it.

What the table does not say: whether what went through can be used to get out. A socket of an empty network namespace leads nowhere; it is still code of the kernel that
an attacker may call. And who is stopped less may do more: the other sandboxes run any program of the machine, and jail does not.

`

// whatElse is not measured: it is what the programs' own documents say that they are for.
const whatElse = `
## What they do beside

Not measured: from what each says of itself.

| | bubblewrap | firejail | runc, crun | gVisor | jail |
|---|---|---|---|---|---|
| started by a user without rights | yes | yes, as a set-user-id program | yes | yes, for tests | **no** |
| any program of the machine | yes | yes | yes, from an image | yes, most | **no**: WebAssembly |
| a terminal inside | yes | yes | yes | yes | **no** |
| a graphics card | yes | yes | yes | some | **no** |
| desktop programs, with profiles for them | as Flatpak | yes | no | no | **no** |
| images of the OCI, an orchestrator above | no | no | yes | yes | **no** |
| other processors than amd64 | yes | yes | yes | arm64 | **no** |
| in wide use for years | yes | yes | yes | yes | **no** |
| filters, limits and mounts from one policy file | no | a profile | the engine's | the engine's | yes |
| changes are reviewed before they are real | no | no | no | no | yes |
| what was refused is on record | no | syslog | no | a log | yes |
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
		"\n\njail's time is that of a whole `jail run` without a daemon at hand: it starts one, compiles nothing, runs a WebAssembly module and writes its record.\n" +
			"[bench.md](bench.md) says what a daemon saves. Times are not to be compared between two such tables: the load differs.\n")
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
