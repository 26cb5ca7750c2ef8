package learn

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

func mounts(dirs ...string) []policy.Mount {
	var out []policy.Mount
	for _, d := range dirs {
		access := policy.Read | policy.Exec
		if strings.HasPrefix(d, "/etc") {
			access = policy.Read
		}
		out = append(out, policy.Mount{Source: d, Target: d, Access: access})
	}
	return out
}

func many(dir string, n int, deep string) []File {
	var out []File
	for i := range n {
		out = append(out, File{Path: fmt.Sprintf("%s/d%d%s/f", dir, i, deep), Opened: 1})
	}
	return out
}

// TestPlaces: files become the mounts that a person would write for them.
func TestPlaces(t *testing.T) {
	wide := mounts("/usr", "/lib64", "/etc/ld.so.cache", "/etc/perl", "/opt")
	for _, c := range []struct {
		name  string
		files []File
		want  []string // target access
	}{
		{"nothing", nil, nil},
		{"a library", []File{{Path: "/usr/lib/x86/libc.so.6", Opened: 2, Program: true}},
			[]string{"/usr/lib/x86 read+exec"}},
		{"data", []File{{Path: "/usr/share/x/y", Opened: 1}}, []string{"/usr/share/x read"}},
		{"a mount that is a file", []File{{Path: "/etc/ld.so.cache", Opened: 3}},
			[]string{"/etc/ld.so.cache read"}},
		{"files of /etc one by one", []File{{Path: "/etc/perl/a", Opened: 1},
			{Path: "/etc/perl/b", Opened: 1}}, []string{"/etc/perl/a read", "/etc/perl/b read"}},
		{"no execution where the runs had none", []File{{Path: "/etc/perl/p", Opened: 1,
			Program: true, Executed: 1}}, []string{"/etc/perl/p read"}},
		{"one above another", []File{{Path: "/usr/lib/git/a", Opened: 1}, {Path: "/usr/lib/git/x/b",
			Opened: 1, Program: true}}, []string{"/usr/lib/git read+exec"}},
		{"a listed directory", []File{{Path: "/usr/share/z", Dir: true, Opened: 1},
			{Path: "/usr/share/z/q/f", Opened: 1}}, []string{"/usr/share/z read"}},
		{"few side by side", many("/opt/go/src", 3, ""),
			[]string{"/opt/go/src/d0 read", "/opt/go/src/d1 read", "/opt/go/src/d2 read"}},
		{"many side by side", many("/opt/go/src", 20, ""), []string{"/opt/go/src read"}},
		{"many, deep", many("/opt/go/src", 20, "/a/b"), []string{"/opt/go/src read"}},
		{"many in a wide directory", many("/usr/share", 20, "/a"), nil},
		{"the workspace, processes and devices are not the host's", []File{{Path: "/workspace/a",
			Opened: 1}, {Path: "/proc/1/stat", Opened: 1}, {Path: "/dev/null", Opened: 1},
			{Path: "/run/jail/init", Executed: 1}}, nil},
		{"what no mount shows", []File{{Path: "/srv/x", Opened: 1}}, nil},
		{"the root is never a place",
			[]File{{Path: "/", Dir: true, Opened: 1}, {Path: "/etc", Dir: true, Opened: 1}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, i := range places(c.files, wide) {
				got = append(got, i.Mount.Target+" "+i.Mount.Access.String())
				if i.Mount.Source != i.Mount.Target || i.Why == "" {
					t.Errorf("%+v", i)
				}
			}
			if c.name == "many in a wide directory" {
				if len(got) != 20 {
					t.Errorf("%d places: %v", len(got), got)
				}
				return
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestPlacesElsewhere: a mount whose place in the jail is another keeps its source.
func TestPlacesElsewhere(t *testing.T) {
	got := places([]File{{Path: "/data/a/f", Opened: 1}},
		[]policy.Mount{{Source: "/srv/d", Target: "/data", Access: policy.Read}})
	if len(got) != 1 || got[0].Mount != (policy.Mount{Source: "/srv/d/a", Target: "/data/a",
		Access: policy.Read}) {
		t.Errorf("%+v", got)
	}
}

func TestPrograms(t *testing.T) {
	var crowd []File
	for i := range manyPrograms + 1 {
		crowd = append(crowd, File{Path: fmt.Sprintf("/usr/lib/tools/t%d", i), Executed: 1})
	}
	for _, c := range []struct {
		name  string
		files []File
		want  []string
	}{
		{"one", []File{{Path: "/usr/bin/git", Executed: 3}}, []string{"/usr/bin/git"}},
		{"the loader comes with them",
			[]File{{Path: "/usr/lib/x/ld-linux-x86-64.so.2", Executed: 3}}, nil},
		{"libraries are not executed",
			[]File{{Path: "/usr/lib/x/libc.so.6", Opened: 3, Program: true}}, nil},
		{"the workspace runs as a whole", []File{{Path: "/workspace/a/b", Executed: 1},
			{Path: "/workspace/c", Executed: 1}}, []string{"/workspace/**"}},
		{"and memory", []File{{Path: "/tmp/go-build1/b001/exe/x", Executed: 1}},
			[]string{"/tmp/**"}},
		{"a crowd", crowd, []string{"/usr/lib/tools/**"}},
	} {
		var got []string
		for _, i := range programs(c.files, memoryDirs()) {
			got = append(got, i.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRequests(t *testing.T) {
	req := func(host, method, path, decision string) Fetch {
		return Fetch{Host: host, Port: 443, Method: method, Path: path, Kind: "request",
			Decision: decision, Rule: "no rule"}
	}
	var paths []Fetch
	for i := range manyPaths + 1 {
		paths = append(paths, req("many.test", "GET", fmt.Sprintf("/%d", i), "allowed"))
	}
	items, person := requests(append(paths, req("a.test", "GET", "/x", "allowed"),
		req("a.test", "GET", "/%78", "allowed"), req("a.test", "POST", "/y", "allowed"),
		req("evil.test", "GET", "/", "denied"),
		req("star.test", "GET", "/a*b", "allowed"), Fetch{Host: "opaque.test", Port: 443,
			Method: "CONNECT", Kind: "tunnel", Decision: "allowed"}))
	var got []string
	for _, i := range items {
		got = append(got,
			fmt.Sprint(i.Rule.Host, i.Rule.Ports, i.Rule.Methods, i.Rule.Paths, i.Rule.Opaque))
	}
	want := []string{"a.test[443] [GET POST] [/x /y] false", "many.test[443] [GET] [/**] false",
		"opaque.test[443] [*] [/**] true", "star.test[443] [GET] [/**] false"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if len(person) != 1 || !strings.Contains(person[0], "evil.test") {
		t.Errorf("%v", person)
	}
}

// TestBounds: a limit is never below what was used, is larger where one was met, and a run that
// used nothing can run again.
func TestBounds(t *testing.T) {
	peaks := Peaks{Wall: 3 * time.Second, CPU: 5 * time.Second, Memory: 300 << 20, PIDs: 40,
		Output: 5 << 20, Workspace: 90 << 20, WorkspaceFiles: 700, FetchIn: 9 << 20,
		FetchRequests: 30}
	for _, p := range []Peaks{{}, peaks} {
		small, large := Bounds(p, true, 1), Bounds(p, true, 4)
		var l policy.Limits
		for i, b := range small {
			if b.Value <= 0 || large[i].Value < b.Value || b.Why == "" {
				t.Errorf("%+v %+v", b, large[i])
			}
			l.Put(b.Name, b.Value)
		}
		if l.Wall < p.Wall || l.CPUTime < p.CPU || l.Memory < p.Memory || l.PIDs < p.PIDs ||
			l.Output < p.Output || l.Workspace < p.Workspace ||
			l.WorkspaceFiles < p.WorkspaceFiles {
			t.Errorf("limits %v of %+v", l, p)
		}
		for _, name := range policy.LimitNames() {
			n, _, _ := l.Get(name)
			if n == 0 && !slices.Contains(policy.OptionalLimits(), name) {
				t.Errorf("limit %s is not said", name)
			}
		}
	}
}

func lessonOf(kind Kind, tool string, files ...File) Lesson {
	return Lesson{Asked: Asked{Name: "t", About: "x", Run: "jail run -- t",
		Native: kind == KindNative, Mounts: mounts("/usr", "/lib64", "/bin", "/etc/ld.so.cache")},
		Observed: Observed{Files: files}, Tool: tool, Kind: kind,
		Loaders: []string{"/lib64/ld-linux-x86-64.so.2"}}
}

// TestTextIsAPolicy: what is written is a policy that means what the draft says, whatever names
// were seen.
func TestTextIsAPolicy(t *testing.T) {
	lesson := lessonOf(KindNative, "/usr/bin/git", File{Path: "/usr/bin/git", Opened: 1,
		Executed: 1, Program: true}, File{Path: "/usr/lib/a\"b/c'd", Opened: 1},
		File{Path: "/workspace/.git/config", Written: true})
	lesson.Asked.Given = []string{"HOME"}
	lesson.Fetches = []Fetch{{Host: "a.test", Port: 443, Method: "GET", Path: "/x", Kind: "request",
		Decision: "allowed"}}
	lesson.Changed = true
	lesson.Refused = []string{"seccomp: socket(\x1b[2J\n[limits]), 2 times"}
	d := Candidate(lesson, Wide(lesson.Asked))
	text, err := d.Text()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	file, err := syntax.Parse(syntax.Profile, "t.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := file.Policy
	for _, i := range d.Items {
		if !(Base{Policy: p}).grants(i) {
			t.Errorf("the text does not grant %+v\n%s", i, text)
		}
	}
	if p.Workspace.Commit != policy.CommitAsk || !slices.Contains(p.Workspace.Hide, "**/.env") ||
		strings.ContainsRune(text, '\x1b') {
		t.Errorf("%+v\n%s", p.Workspace, text)
	}
	for _, want := range []string{"a commit of .git/config", "Not granted, needs a person",
		"Not observed", "executed once"} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing of %q in\n%s", want, text)
		}
	}
	if wide, err := Wide(lesson.Asked).Text(); err != nil {
		t.Errorf("%v\n%s", err, wide)
	}
}

// TestWideIsAFloor: the learning policy shows nothing of keys, homes, sockets or the rest of /etc,
// writes nowhere on the host, and hides secrets.
func TestWideIsAFloor(t *testing.T) {
	text, err := Wide(Asked{Name: "t", About: "x", Run: "y", Native: true,
		Mounts: WideMounts()}).Text()
	if err != nil {
		t.Fatal(err)
	}
	file, err := syntax.Parse(syntax.Profile, "t.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	eff, err := policy.Resolve(policy.Layer{Name: "ceiling", Policy: policy.Top()},
		file.Layer("learning", "t.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/etc/shadow", "/etc/passwd", "/etc/ssh/ssh_host_rsa_key",
		"/etc/ssl/private/k", "/root/.ssh/id_rsa", "/home/a/.aws/credentials", "/run/docker.sock",
		"/var/run/x.sock", "/var/lib/x", "/sys/kernel", "/boot/x"} {
		if d := eff.Decide(policy.Open{Path: p, Want: policy.Read}); d.Allowed {
			t.Errorf("read %s is allowed: %+v", p, d)
		}
	}
	for _, p := range []string{"/usr/bin/x", "/lib/x", "/opt/x", "/etc/ld.so.cache"} {
		if d := eff.Decide(policy.Open{Path: p, Want: policy.Write}); d.Allowed {
			t.Errorf("write %s is allowed: %+v", p, d)
		}
	}
	if d := eff.Decide(policy.Connect{Host: "example.com", Port: 443}); d.Allowed {
		t.Error("there is a network")
	}
	if len(file.Policy.Workspace.Hide) != len(secrets()) ||
		file.Policy.Workspace.Commit != policy.CommitNever {
		t.Errorf("%+v", file.Policy.Workspace)
	}
}

// TestLeast: what a tool needs stays, whatever it is, and nothing else does; and one trial is
// enough for a draft of which nothing is needed.
func TestLeast(t *testing.T) {
	lesson := lessonOf(KindNative, "/usr/bin/sort", File{Path: "/usr/bin/sort", Opened: 1,
		Executed: 1, Program: true},
		File{Path: "/usr/lib/x/libc.so.6", Opened: 1, Program: true}, File{Path: "/etc/ld.so.cache",
			Opened: 1}, File{Path: "/usr/share/locale/l", Opened: 1}, File{Path: "/workspace/in",
			Opened: 1})
	d := Candidate(lesson, Wide(lesson.Asked))
	key := func(i Item) string { return string(i.Kind) + " " + i.Name }
	for _, needs := range [][]string{
		{},
		{"mount /usr/lib/x", "tools.native /usr/bin/sort", "mount /usr/bin/sort"},
		{"mount /usr/lib/x", "mount /usr/share/locale", "env.set LANG=C.UTF-8", "mount /tmp",
			"syscalls.groups loopback"},
		{"mount /bin", "mount /lib64/ld-linux-x86-64.so.2", "env.set HOME=/home/tool"},
	} {
		found, err := Least(context.Background(), d, lesson.Observed.Files, nil,
			func(_ context.Context, d Draft) (bool, error) {
				for _, n := range needs {
					if !slices.ContainsFunc(d.Items, func(i Item) bool {
						return key(i) == n ||
							n == "mount /usr/bin/sort" && key(i) == "mount /usr/bin"
					}) {
						return false, nil
					}
				}
				return d.Access >= policy.WorkspaceShadow, nil
			})
		if err != nil || !found.Whole {
			t.Fatalf("%+v %v", found, err)
		}
		var left []string
		for _, i := range found.Draft.Items {
			if !i.Fixed {
				left = append(left, key(i))
			}
		}
		slices.Sort(left)
		slices.Sort(needs)
		if !slices.Equal(left, needs) {
			t.Errorf("left %v, want %v", left, needs)
		}
		for _, i := range found.Draft.Of(KindMount) {
			if i.Mount.Access == policy.Read|policy.Exec {
				t.Errorf("%s may be executed from, and nothing needs that", i.Name)
			}
		}
		if len(needs) == 0 && found.Trials > 10 {
			t.Errorf("%d trials", found.Trials)
		}
	}
}

// TestNarrow: programs by their names take the place of their directory where nothing else of it
// was used.
func TestNarrow(t *testing.T) {
	bin := Item{Kind: KindMount, Name: "/usr/bin", Mount: policy.Mount{Source: "/usr/bin",
		Target: "/usr/bin", Access: policy.Read | policy.Exec}}
	files := []File{{Path: "/usr/bin/python3.11", Executed: 2}, {Path: "/usr/lib/x", Opened: 1}}
	out, ok := narrow(bin, "/usr/bin/npm", files,
		map[string][]string{"/usr/bin/python3.11": {"/usr/bin/python3"}})
	if !ok || len(out) != 3 || out[2].Name != "/usr/bin/npm" ||
		out[1].Mount.Target != "/usr/bin/python3" || out[1].Mount.Source != "/usr/bin/python3" {
		t.Errorf("%t %+v", ok, out)
	}
	var names []string
	for i := range manyPrograms {
		names = append(names, fmt.Sprintf("/usr/bin/python3-%d", i))
	}
	if out, ok := narrow(bin, "", files, map[string][]string{"/usr/bin/python3.11": names}); ok {
		t.Errorf("%d mounts of one program", len(out))
	}
	for _, files := range [][]File{nil, append(files, File{Path: "/usr/bin/script", Opened: 1}),
		append(files, File{Path: "/usr/bin/sub/x", Executed: 1})} {
		if out, ok := narrow(bin, "/usr/bin/npm", files, nil); ok {
			t.Errorf("%+v", out)
		}
	}
}

// TestMerge: what a file grants stays, byte by byte; what is missing is added; a second time
// nothing is.
func TestMerge(t *testing.T) {
	first := lessonOf(KindNative, "/usr/bin/git", File{Path: "/usr/bin/git", Executed: 1,
		Program: true}, File{Path: "/usr/lib/x/libc.so.6", Opened: 1, Program: true})
	text, err := Candidate(first, Wide(first.Asked)).Text()
	if err != nil {
		t.Fatal(err)
	}
	text = strings.Replace(text, "policy = 1", "# a word of its author\npolicy = 1", 1)
	parse := func(text string) policy.Policy {
		t.Helper()
		f, err := syntax.Parse(syntax.Profile, "t.toml", []byte(text), nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return f.Policy
	}
	second := lessonOf(KindNative, "/usr/bin/ssh", File{Path: "/usr/bin/ssh", Executed: 1,
		Program: true}, File{Path: "/usr/lib/x/libc.so.6", Opened: 1, Program: true},
		File{Path: "/usr/share/ssh/m", Opened: 1})
	second.Peaks.Memory = 1 << 30
	second.Fetches = []Fetch{{Host: "a.test", Port: 443, Method: "GET", Path: "/x", Kind: "request",
		Decision: "allowed"}}
	base := Base{text, parse(text)}
	d := Candidate(second, Wide(second.Asked))
	missing := base.Missing(d)
	for _, gone := range []string{"/usr/lib/x", "/usr/bin"} {
		if missing.Has(KindMount, gone) {
			t.Errorf("%s is granted already", gone)
		}
	}
	merged, err := base.Merged(missing)
	if err != nil {
		t.Fatal(err)
	}
	p := parse(merged)
	for _, i := range d.Items {
		if !(Base{Policy: p}).grants(i) {
			t.Errorf("%+v is not granted\n%s", i, merged)
		}
	}
	if !base.Policy.Mounts.LessEq(p.Mounts) || !strings.Contains(merged,
		"# a word of its author") || p.Limits.Memory < 1<<30 {
		t.Errorf("something of the file is gone\n%s", merged)
	}
	again := Base{merged, p}
	if got, err := again.Merged(again.Missing(d)); err != nil || got != merged {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestSayable(t *testing.T) {
	for p, want := range map[string]bool{"/a/b": true, "/a b": true, "/ü": true, "a": false,
		"/a/../b": false, "/a\n": false, "/a\x1b": false, "/a*": false, "/a\xff": false, "": false,
		"/a\u202eb": false} {
		if Sayable(p) != want {
			t.Errorf("%q: %t", p, !want)
		}
	}
}

func TestObservedMerge(t *testing.T) {
	a := Observed{Files: []File{{Path: "/b", Opened: 1}, {Path: "/a", Executed: 1}},
		Imports: []string{"m.x"}}
	got := a.Merge(Observed{Files: []File{{Path: "/b", Opened: 2, Written: true}}, Lost: 1,
		Imports: []string{"m.x", "m.a"}})
	if len(got.Files) != 2 || got.Files[0].Path != "/a" || got.Files[1] != (File{Path: "/b",
		Opened: 3, Written: true}) || got.Lost != 1 || !slices.Equal(got.Imports, []string{"m.a",
		"m.x"}) {
		t.Errorf("%+v", got)
	}
}
