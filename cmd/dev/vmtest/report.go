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

const reportHead = "# The suite on other kernels\n\n" +
	"Written by `make vm-test`, which makes virtual machines of Debian, boots them with systemd as process 1 and control groups v2 alone, and runs there the\n" +
	"test binaries that were built outside: as root in a unit that may have control groups of its own, and then as a user in a unit of that user's own systemd,\n" +
	"to which all controllers are delegated. The processor is emulated, so it needs no hardware support, and a machine takes its time.\n\n" +
	"A skipped test is a failure, but for five reasons that are counted apart: the kernel's Landlock is older than the right that is tested, the test is\n" +
	"root's and the one who runs it is not, it is a long form that `JAIL_TEST_LONG` or `JAIL_WASI_TESTSUITE` asks for, it is about control groups v1, or\n" +
	"the kernel refuses the attack by itself before any wall is asked. What a user has without root is tested by root, who becomes that user.\n\n" +
	"## How to run it\n\n" +
	"On Debian, as root; `.ci/deps vm` installs what it needs (qemu, mmdebstrap), and about 3 GB of disk are used below `bin/.build/vm`:\n\n" +
	"```\nmake vm-test                                                    # all kernels, all packages; writes this file\n" +
	"make vm-test VMTEST=\"-kernels 6.1 -packages jail/cgroup -as root\"  # one kernel, one package; writes nothing\n" +
	"make vm-test VMTEST=\"-again -kernels 6.12\"                        # with what was built last\n```\n\n" +
	"`go run ./cmd/dev/vmtest -h` has the other options. An image is made once, in half a minute to two minutes for each kernel; the logs of a run, one for each package, are in\n" +
	"`bin/.build/vm/results`. How long a machine takes depends on what else the computer does, since emulation wants a processor\n" +
	"of its own; the machine's two take turns on it. With Vagrant, `vagrant up` and `vagrant provision --provision-with test` do the same in a machine with hardware support, as root.\n\n" +
	"What is not run there, and why: packages that compile C or WebAssembly or look only at the source are listed below the table; of `cmd`, `TestNotLinked` and\n" +
	"`TestEmbedding` ask Go about the source or build programs with it, and the machines have an old Go of Debian's alone; `TestFetchGuests` compiles C and Rust; `TestConsole`, and two tests of `supervisor/console`, drive a browser; `TestEveryByteFlipped` of\n" +
	"`supervisor/audit` computes for an hour there.\n\n" +
	"Before anything else the Debian package is installed on the freshly booted machine, and its first act is a run with a shadow (`cmd/dev/vmtest/installed`).\n\n" +
	"What differs between the kernels, as seen there: before Linux 6.3 a tmpfs cannot map owners, so a directory on one can be no workspace and no\n" +
	"writable mount, and `jail` refuses and says so; the tests therefore run on ext4. The newest kernel alone is started with its audit there, though off: tests of what it\n" +
	"tells of refused paths switch it on.\n\n"

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
