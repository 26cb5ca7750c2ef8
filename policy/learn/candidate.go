package learn

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// Lesson is what one or more runs under a wide policy have shown.
type Lesson struct {
	Asked    Asked
	Observed Observed
	Fetches  []Fetch
	// Refused has a sentence for each refusal of a layer.
	Refused []string
	Peaks   Peaks
	// Tool is core-utils/grep, /path/x.wasm or /usr/bin/git.
	Tool string
	Kind Kind // KindTool, KindModule or KindNative
	// Changed is set if the runs left changes in the workspace.
	Changed bool
	// Failed is set if the tool did not exit with 0.
	Failed bool
	// Loaders are the dynamic loaders of the host's C libraries.
	Loaders []string
}

// Candidate returns a draft with the observed items, and with items that a tool may need although
// they cannot be observed, which are marked as blind.
func Candidate(l Lesson, wide Draft) Draft {
	d := Draft{Name: l.Asked.Name, About: l.Asked.About, Run: l.Asked.Run, Tool: l.Tool,
		Native: l.Kind == KindNative}
	d.Access, d.Files, d.Writes = workspaceOf(l)
	if l.Asked.NoWorkspace {
		d.Access, d.Files = policy.WorkspaceNone, ""
	}
	d.Items = append(d.Items, places(l.Observed.Files, l.Asked.Mounts)...)
	if d.Native {
		d.Items = append(d.Items, blindLinks(d, l)...)
	}
	d.Items = append(d.Items, memory(d.Native)...)
	switch l.Kind {
	case KindNative:
		programs := programs(l.Observed.Files, memoryDirs())
		if !slices.ContainsFunc(programs, func(i Item) bool { return i.Name == l.Tool }) &&
			!covered(programs, l.Tool) {
			programs = append([]Item{{Kind: KindNative, Name: l.Tool,
				Why: "the tool, as it was named."}}, programs...)
		}
		d.Items = append(d.Items, programs...)
		d.Items = append(d.Items, Item{Kind: KindGroup, Name: policy.GroupNative, Fixed: true,
			Why: "a program of the host"},
			Item{Kind: KindGroup, Name: policy.GroupLoopback, Blind: true,
				Why: "without it the run is another: it has a server or a client on the jail's " +
					"own loopback"})
	default:
		d.Items = append(d.Items, Item{Kind: l.Kind, Name: l.Tool, Fixed: true,
			Why: imports(l.Observed.Imports)},
			Item{Kind: KindGroup, Name: policy.GroupWASI, Fixed: true, Why: "a WebAssembly module"})
	}
	for _, i := range wide.Items {
		if i.Kind == KindEnv && (d.Native || strings.HasPrefix(i.Name, "LANG=")) ||
			i.Kind == KindGiven {
			d.Items = append(d.Items, i)
		}
	}
	rules, refused := requests(l.Fetches)
	d.Items = append(d.Items, rules...)
	d.Limits = Bounds(l.Peaks, len(rules) > 0, 1)
	d.Person = append(slices.Clone(l.Refused), refused...)
	d.Person = append(d.Person, guarded(l)...)
	d.Never, d.Unseen = neverGranted(), unseen(l)
	return d
}

func covered(programs []Item, tool string) bool {
	return slices.ContainsFunc(programs, func(i Item) bool {
		dir, whole := strings.CutSuffix(i.Name, "/**")
		return whole && paths.Within(dir, tool)
	})
}

// imports returns a sentence with the modules that a tool imports from.
func imports(all []string) string {
	if len(all) == 0 {
		return "the tool."
	}
	count := map[string]int{}
	for _, im := range all {
		module, _, _ := strings.Cut(im, ".")
		count[module]++
	}
	var parts []string
	for _, im := range all {
		module, _, _ := strings.Cut(im, ".")
		if n := count[module]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d functions of %s", n, module))
			count[module] = 0
		}
	}
	return "the tool; it imports " + strings.Join(parts, " and ") + "."
}

// workspaceOf returns the access to the workspace, a sentence of evidence, and whether the runs
// changed it.
func workspaceOf(l Lesson) (access policy.WorkspaceAccess, evidence string, writes bool) {
	opened, written, listed := 0, 0, 0
	for _, f := range l.Observed.Files {
		switch {
		case !paths.Within(policy.WorkspaceDir, f.Path):
		case f.Written:
			written++
		case f.Dir:
			listed++
		default:
			opened++
		}
	}
	evidence = fmt.Sprintf("Opened there: %d files, %d of them written, and %d directories.",
		opened+written, written, listed)
	if l.Changed {
		evidence += " The runs left changes."
	}
	return policy.WorkspaceShadow, evidence, l.Changed
}

// blindLinks returns mounts of links and loaders, which cannot be observed: a file that is opened
// through a link is observed under its real path.
func blindLinks(d Draft, l Lesson) []Item {
	var out []Item
	// The wide ones come first, and are left out first.
	for _, p := range append([]string{"/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives"},
		l.Loaders...) {
		m, ok := mountOf(l.Asked.Mounts, p)
		if !ok || d.Has(KindMount, p) {
			continue
		}
		m = policy.Mount{Source: path.Join(m.Source, strings.TrimPrefix(p, m.Target)), Target: p,
			Access: m.Access}
		why := "Names that lead elsewhere. Looking one up is not observed; without it the run is " +
			"another."
		if slices.Contains(l.Loaders, p) {
			why = "The loader of C programs, by the name that is in each of them."
		}
		out = append(out, Item{Kind: KindMount, Name: p, Mount: m, Why: why, Blind: true})
	}
	return out
}

// guarded returns a sentence for each pattern of protected names, with the first such file that the
// runs wrote, and one for /proc.
func guarded(l Lesson) []string {
	var out []string
	proc := 0
	held := map[string]bool{}
	for _, f := range l.Observed.Files {
		if paths.Within("/proc", f.Path) && !f.Dir {
			proc++
		}
		rel, ok := strings.CutPrefix(f.Path, policy.WorkspaceDir+"/")
		if !ok || !f.Written {
			continue
		}
		if risk, ok := policy.Protected(rel); ok && !held[risk.Pattern] {
			held[risk.Pattern] = true
			out = append(out, fmt.Sprintf("a commit of %s: %s", rel, risk.Reason))
		}
	}
	if proc > 0 && l.Kind == KindNative {
		out = append(out, fmt.Sprintf("/proc: %d of its files were opened; they are of the jail's "+
			"own processes, and nothing of the host's is shown", proc))
	}
	return out
}

// neverGranted lists what no run sees and no learned policy grants.
func neverGranted() []string {
	return []string{
		"secrets (the names of workspace.hide): hidden from the runs, so whether the tool looks " +
			"for one is not known",
		"keys and files of a home, /etc but what says how programs work, /sys, other processes: " +
			"not shown to the runs",
		"sockets of services: not shown to the runs"}
}

func unseen(l Lesson) []string {
	out := []string{
		"names that are looked up and not opened (stat, access, links), and opens that failed",
		"what is done in memory (" + strings.Join(memoryDirs(), ", ") +
			"), and which variables are read",
		"open_files, file_size, and what was in the workspace for a while",
	}
	if l.Kind == KindNative {
		out = append(out,
			"single system calls: groups are tried, and what the widest refuses is counted")
	}
	if l.Observed.Lost > 0 {
		out = append(out,
			fmt.Sprintf("files: there was more than could be told of, %s", times(l.Observed.Lost)))
	}
	if l.Observed.Unnamed > 0 {
		out = append(out,
			fmt.Sprintf("%d opens of files whose names no policy can say", l.Observed.Unnamed))
	}
	return out
}

// Widen adds all mounts that the runs had to a draft, marked as blind.
func Widen(d Draft, mounts []policy.Mount) Draft {
	d = d.with(d.Items)
	for _, m := range mounts {
		i := Item{Kind: KindMount, Name: m.Target, Mount: m, Blind: true,
			Why: "What is used of it was not observed; without it the run is another."}
		if d.Has(KindMount, m.Target) {
			d = without(d, []Item{i})
		}
		d.Items = append(d.Items, i)
	}
	return d
}
