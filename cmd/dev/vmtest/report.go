package main

import (
	"fmt"
	"strings"
	"time"
)

// A report is all machines together.
type report struct {
	config   config
	packages []pkg
	machines []machine
	date     time.Time
}

func (r report) ok() bool {
	for _, m := range r.machines {
		if m.died != nil {
			return false
		}
		for _, results := range m.results {
			for _, p := range results {
				if !p.ok() {
					return false
				}
			}
		}
	}
	return true
}

const reportHead = `# The suite on other kernels

` + "`make vm-test`" + ` writes this page. It makes virtual machines of Debian with systemd and cgroups v2 only, and runs the test binaries in them: as root in
a unit with delegated cgroups, and as a user in a unit of the user's own systemd, with all controllers delegated. The processor is emulated, so no
hardware support is needed, and the tests run slowly. First the Debian package is installed on the new machine, runs a tool over a shadow and an agent of a user, and is
upgraded and removed (` + "`cmd/dev/vmtest/installed`" + `).

A skipped test counts as a failure, with five exceptions, which are counted apart: the kernel's Landlock lacks the tested right; the test needs root;
the test needs ` + "`JAIL_TEST_LONG`" + ` or ` + "`JAIL_WASI_TESTSUITE`" + `; the test is about cgroups v1; or the kernel refuses the attack before any layer of the jail
is asked.

## How to run it

On Debian, as root; ` + "`.ci/deps vm`" + ` installs qemu and mmdebstrap, and about 4 GB below ` + "`bin/.build/vm`" + ` are used:

` + "```" + `
make vm-test                                                       # all kernels, all packages; writes this page
make vm-test VMTEST="-kernels 6.1 -packages jail/cgroup -as root"  # one kernel, one package; writes nothing
make vm-test VMTEST="-again -kernels 6.12"                         # with the binaries of the last run
go run ./cmd/dev/vmtest -h                                         # the other options
` + "```" + `

On a busy host give the emulator priority. With ` + "`kernel.sched_autogroup_enabled`" + ` the nice value counts only among processes of one session, so write it for the whole
session: ` + "`echo -10 > /proc/PID/autogroup`" + `.

The logs are in ` + "`bin/.build/vm/results`" + `, one for each package. ` + "`vagrant up`" + ` and ` + "`vagrant provision --provision-with test`" + ` run the suite as root in a
machine with hardware support.

Not run there: packages that compile C or WebAssembly or read only the source, which are listed below the table; ` + "`TestNotLinked`" + ` of ` + "`cmd`" + ` and
` + "`TestEmbedding`" + ` of ` + "`cmd/jail/run`" + `, which need a newer Go than Debian's; ` + "`TestFetchGuests`" + `, which compiles C and Rust; ` + "`TestConsole`" + ` and two tests of
` + "`supervisor/console`" + `, which drive a browser; and ` + "`TestEveryByteFlipped`" + ` of ` + "`supervisor/audit`" + `, which takes an hour there.

Differences between the kernels: before Linux 6.3 a tmpfs cannot map owners, so ` + "`jail`" + ` refuses a directory on a tmpfs as a workspace or a writable mount,
and the tests run on ext4. Only the newest kernel starts with its audit; the tests of refused paths enable it.

`

func (r report) markdown() string {
	var b strings.Builder
	b.WriteString(reportHead)
	fmt.Fprintf(&b, "## The run of %s\n\n", r.date.UTC().Format("2006-01-02"))
	for _, m := range r.machines {
		fmt.Fprintf(&b, "- **%s**: with the programs of Debian %s, %s.", m.kernel, m.userland,
			m.took.Round(time.Second))
		if m.instead != "" {
			fmt.Fprintf(&b, " It stands in for what was not to be had: %s.", m.instead)
		}
		if m.died != nil {
			fmt.Fprintf(&b, " **It died: %v.**", m.died)
		}
		b.WriteString("\n")
	}
	if r.config.short {
		b.WriteString("\nThe tests had `-test.short`.\n")
	}
	if r.config.tests != "" {
		fmt.Fprintf(&b, "\nOf the tests only those that match `%s`.\n", r.config.tests)
	}
	b.WriteString(
		"\nTests that passed, and in brackets those that this kernel, or a user, has not the means for:\n\n| package |")
	columns := []string{}
	for _, m := range r.machines {
		for _, who := range r.config.as {
			columns = append(columns, m.kernel+" "+who)
		}
	}
	b.WriteString(" " + strings.Join(columns, " | ") + " |\n|---|" + strings.Repeat("---:|",
		len(columns)) + "\n")
	for _, p := range r.packages {
		fmt.Fprintf(&b, "| %s |", p.dir)
		for _, m := range r.machines {
			for _, who := range r.config.as {
				fmt.Fprintf(&b, " %s |", m.results[who][p.dir].cell())
			}
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\nNot in the machines, for a kernel has no say in it: %s.\n",
		strings.Join(notHere, ", "))
	r.writeTrouble(&b)
	r.writeLacking(&b)
	for _, m := range r.machines {
		for _, who := range r.config.as {
			if text, ok := m.doctor[who]; ok {
				fmt.Fprintf(&b, "\n`jail doctor` as %s on %s:\n\n```\n%s```\n", who, m.kernel, text)
			}
		}
	}
	return b.String()
}

func (r result) cell() string {
	text := fmt.Sprint(r.passed)
	if n := len(r.lacking); n > 0 {
		text += fmt.Sprintf(" (%d)", n)
	}
	if n := len(r.skipped); n > 0 {
		text += fmt.Sprintf(", **%d skipped**", n)
	}
	if n := len(r.failed); n > 0 {
		text += fmt.Sprintf(", **%d failed**", n)
	}
	if r.end != "" {
		text += ", **" + r.end + "**"
	}
	return text
}

func (r report) each(f func(m machine, who, dir string, p result)) {
	for _, m := range r.machines {
		for _, p := range r.packages {
			for _, who := range r.config.as {
				f(m, who, p.dir, m.results[who][p.dir])
			}
		}
	}
}

func (r report) writeTrouble(b *strings.Builder) {
	if r.ok() {
		b.WriteString("\nNothing failed, and nothing else was skipped.\n")
		return
	}
	b.WriteString("\n## What failed\n\n")
	r.each(func(m machine, who, dir string, p result) {
		for _, t := range p.failed {
			fmt.Fprintf(b, "- %s, %s, %s: %s\n", m.kernel, who, dir, t)
		}
		for _, s := range p.skipped {
			fmt.Fprintf(b, "- %s, %s, %s: %s was skipped: %s\n", m.kernel, who, dir, s.test,
				s.reason)
		}
		if p.end != "" {
			fmt.Fprintf(b, "- %s, %s, %s: %s\n", m.kernel, who, dir, p.end)
		}
	})
}

// writeLacking says what root's tests a kernel has not the means for; a user's are as many as root
// has.
func (r report) writeLacking(b *strings.Builder) {
	var lines strings.Builder
	r.each(func(m machine, who, dir string, p result) {
		if who != "root" {
			return
		}
		for _, s := range p.lacking {
			fmt.Fprintf(&lines, "- %s, %s, %s: %s\n", m.kernel, dir, s.test, s.reason)
		}
	})
	if lines.Len() > 0 {
		b.WriteString("\n## What a kernel has not the means for\n\n" + lines.String())
	}
}
