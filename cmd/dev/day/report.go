package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// normal are the parts of outputs that differ from one run to the next without a jail, too. Each is
// replaced on both sides.
var normal = []struct {
	re   *regexp.Regexp
	with string
}{
	// Times that test runners and servers measure or print.
	{regexp.MustCompile(`\b[0-9]+(\.[0-9]+)?(ms|s|m)\b( \([0-9:]+\))?`), "TIME"},
	{regexp.MustCompile(`[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4} [0-9:]{8}`), "DATE"},
	{regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.,]{8,}`), "DATE"},
	// A shell names the process that a signal ended.
	{regexp.MustCompile(`line [0-9]+: +[0-9]+ `), "line: PID "},
	// npm names its logs by the time.
	{regexp.MustCompile(`_logs/[0-9TZ_-]+debug`), "_logs/TIME"},
}

// known are the calls that are allowed to differ, by their lines, and why.
var known = map[string]string{
	"pwd; ls -la --time-style=+": "overlayfs gives a directory one link, and the directory above " +
		"the workspace is the jail's own",
	`printf '#include <stdlib.h>\nint main(void) { volatile void *p = malloc(8); p = 0; return 0; ` +
		`}\n' > leak.c && gcc -g -fsanitize=address -o leak leak.c && ./leak 2>&1 | grep -o ` +
		`'ERROR: LeakSanitizer: [a-z ]*'`: "LeakSanitizer traces its own process, which a jail " +
		"forbids; the profile build turns it off",
}

// A difference is what one call did otherwise in the session.
type difference struct {
	day, way string
	call     call
	what     string
}

// A timing is of one call: without and within the session.
type timing struct {
	class, way      string
	pass            int
	without, within time.Duration
}

// unknown counts the differences of calls that are not known to differ.
func (p *report) unknown() (n int) {
	for _, d := range p.differences {
		if known[d.call.line] == "" {
			n++
		}
	}
	return n
}

// A report has all differences and timings.
type report struct {
	calls       int
	differences []difference
	timings     []timing
}

func (p *report) add(r *replay, n int, without, within outcome) {
	c := r.d.calls[n]
	p.calls++
	if c.background == "" && c.stop == "" {
		p.timings = append(p.timings, timing{c.class, r.way(n), r.pass, without.took, within.took})
	}
	var what []string
	if without.code != within.code {
		what = append(what, fmt.Sprintf("exit code %d, outside %d", within.code, without.code))
	}
	what = append(what, differ("standard output", without.out, within.out)...)
	what = append(what, differ("standard error", without.err, within.err)...)
	p.differs(r, n, what)
}

func (p *report) addFiles(r *replay, n int, without, within outcome) {
	if without.code != 0 || within.code != 0 {
		p.differs(r, n, []string{fmt.Sprintf("files cannot be listed: %+v %+v", without, within)})
		return
	}
	p.differs(r, n, differ("files afterwards", without.out, within.out))
}

func (p *report) differs(r *replay, n int, what []string) {
	if len(what) > 0 {
		p.differences = append(p.differences, difference{r.d.name, r.way(n), r.d.calls[n],
			strings.Join(what, "; ")})
		fmt.Fprintf(r.w.log, "%s %d %s: %s\n  %s\n", r.d.name, n+1, r.way(n), r.d.calls[n].line,
			strings.Join(what, "\n  "))
	}
}

// differ says in which lines two texts differ.
func differ(name, without, within string) []string {
	for _, n := range normal {
		without, within = n.re.ReplaceAllString(without, n.with), n.re.ReplaceAllString(within,
			n.with)
	}
	if without == within {
		return nil
	}
	a, b := strings.Split(without, "\n"), strings.Split(within, "\n")
	said := []string{}
	for _, side := range []struct {
		sign        string
		these, than []string
	}{{"-", a, b}, {"+", b, a}} {
		has, room := map[string]int{}, len(said)+6
		for _, line := range side.than {
			has[line]++
		}
		for _, line := range side.these {
			if has[line]--; has[line] < 0 && len(said) < room {
				said = append(said, fmt.Sprintf("%s%.200s", side.sign, line))
			}
		}
	}
	return []string{fmt.Sprintf("%s: %q", name, cmp.Or(strings.Join(said, " | "),
		"the order of lines"))}
}

// print writes both tables as Markdown.
func (p *report) print(out io.Writer) {
	fmt.Fprintf(out, "%d calls, %d differences, %d of them not known.\n\n", p.calls,
		len(p.differences), p.unknown())
	fmt.Fprint(out, "| day | by | call | difference | why |\n|---|---|---|---|---|\n")
	cell := strings.NewReplacer("|", "\\|", "\n", " ")
	for _, d := range p.differences {
		fmt.Fprintf(out, "| %s | %s | `%s` | %s | %s |\n", d.day, d.way, cell.Replace(d.call.line),
			cell.Replace(d.what), known[d.call.line])
	}
	fmt.Fprint(out, "\nAdded time of a call, medians in milliseconds.\n\n"+
		"| class | by | calls | outside | added after a pause | added back to back |\n"+
		"|---|---|---|---|---|---|\n")
	kinds := map[[2]string][]timing{}
	for _, t := range p.timings {
		kinds[[2]string{t.class, t.way}] = append(kinds[[2]string{t.class, t.way}], t)
		kinds[[2]string{"all", t.way}] = append(kinds[[2]string{"all", t.way}], t)
	}
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	}) {
		var without []time.Duration
		var added [2][]time.Duration
		for _, t := range kinds[kind] {
			without = append(without, t.without)
			added[t.pass] = append(added[t.pass], t.within-t.without)
		}
		fmt.Fprintf(out, "| %s | %s | %d | %s | %s | %s |\n", kind[0], kind[1], len(kinds[kind]),
			median(without), median(added[0]), median(added[1]))
	}
}

func median(all []time.Duration) string {
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return fmt.Sprintf("%.1f", all[len(all)/2].Seconds()*1000)
}
