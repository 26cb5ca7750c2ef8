package runners

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestInvocationJSON(t *testing.T) {
	all := make([]byte, 255)
	for i := range all {
		all[i] = byte(i + 1)
	}
	inv := Invocation{Args: Texts{"grep", string(all), "", "\xff", "ünï", `{"base64":"x"}`},
		Env: Texts{"A=\xfe"}, Cwd: "/workspace",
		Mounts: []Mount{{Path: "/workspace", Write: true, Hide: []string{".env"}}},
		Layout: LayoutRooted, MemoryLimit: 1 << 30}
	b, err := json.Marshal(inv)
	if err != nil {
		t.Fatal(err)
	}
	var back Invocation
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(inv, back) {
		t.Errorf("%+v\nbecame %+v", inv, back)
	}
	for _, bad := range []string{`[1]`, `[null]`, `[{}]`, `[{"base64":"*"}]`, `"x"`, `[["x"]]`} {
		var x Texts
		if json.Unmarshal([]byte(bad), &x) == nil {
			t.Errorf("%s is read as %q", bad, x)
		}
	}
}

func FuzzTexts(f *testing.F) {
	f.Add("a", "\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		in := Texts{a, b}
		data, err := json.Marshal(in)
		if err != nil || !utf8.Valid(data) {
			t.Fatal(err)
		}
		var out Texts
		if err := json.Unmarshal(data, &out); err != nil || !reflect.DeepEqual(in, out) {
			t.Errorf("%q became %q, %v", in, out, err)
		}
	})
}

func TestValidate(t *testing.T) {
	good := func() Invocation {
		return Invocation{Args: Texts{"ls"}, Mounts: []Mount{{Path: "/workspace"}, {Path: "/tmp"}}}
	}
	for _, tt := range []struct {
		words  string
		change func(*Invocation)
	}{
		{"", func(*Invocation) {}},
		{"", func(i *Invocation) { i.Mounts = []Mount{{Path: "/"}} }},
		{"", func(i *Invocation) { i.Mounts = append(i.Mounts, Mount{Path: "/workspace2"}) }},
		{"no arguments", func(i *Invocation) { i.Args = nil }},
		{"argument 1 has a NUL", func(i *Invocation) { i.Args = Texts{"ls", "a\x00b"} }},
		{"more than 2097152", func(i *Invocation) {
			i.Args = Texts{"ls", strings.Repeat("x", 2<<20)}
		}},
		{"entry 0 has a NUL", func(i *Invocation) { i.Env = Texts{"A=\x00"} }},
		{"not NAME=VALUE", func(i *Invocation) { i.Env = Texts{"=x"} }},
		{"clean absolute", func(i *Invocation) { i.Mounts[0].Path = "workspace" }},
		{"clean absolute", func(i *Invocation) { i.Mounts[0].Path = "/a/../b" }},
		{"clean absolute", func(i *Invocation) { i.Mounts[0].Path = "" }},
		{"clean absolute", func(i *Invocation) { i.Mounts[0].Path = "/a/" }},
		{"given twice", func(i *Invocation) { i.Mounts[1].Path = "/workspace" }},
		{"one inside the other", func(i *Invocation) { i.Mounts[1].Path = "/workspace/x" }},
		{"one inside the other", func(i *Invocation) { i.Mounts[1].Path = "/" }},
		{"working directory", func(i *Invocation) { i.Cwd = "x" }},
		{"layout", func(i *Invocation) { i.Layout = "round" }},
		{"negative", func(i *Invocation) { i.MemoryLimit = -1 }},
		{"negative", func(i *Invocation) { i.OpenFiles = -1 }},
		{"negative", func(i *Invocation) { i.Module.Bytes = -1 }},
	} {
		inv := good()
		tt.change(&inv)
		err := inv.Validate()
		if tt.words == "" && err != nil || tt.words != "" && (!errors.Is(err, errInvocation) ||
			!strings.Contains(err.Error(), tt.words)) {
			t.Errorf("%q: %v", tt.words, err)
		}
	}
}

func TestDenials(t *testing.T) {
	var d Denials
	for i := range 1000 {
		d.Add("wasi", fmt.Sprint("read /etc/", i), "r")
		d.Add("wasi", "read /etc/shadow", "r")
	}
	list := d.List()
	if len(list) != maxDenials+1 {
		t.Fatalf("%d entries", len(list))
	}
	total := 0
	for _, x := range list {
		total += x.Count
	}
	if total != 2000 || list[1].Count != 1000 ||
		list[maxDenials].Count != 2000-1000-(maxDenials-1) {
		t.Errorf("counts: %d in all, %+v, %+v", total, list[1], list[maxDenials])
	}
	d = Denials{}
	d.Add("wasi", "read /\x1b[31m\xff\n"+strings.Repeat("x", 10_000), "r")
	if what := d.List()[0].What; len(what) > 700 || strings.ContainsAny(what, "\x1b\n") ||
		!utf8.ValidString(what) {
		t.Errorf("%d bytes: %q", len(what), what)
	}
}

// TestMillionDenials: a tool that is refused a million things, most of them new, costs a bounded
// list, and each is counted (T-409).
func TestMillionDenials(t *testing.T) {
	var d Denials
	const refusals = 1_000_000
	for i := range refusals {
		what := "read /etc/shadow"
		if i%2 == 0 {
			what = "read /etc/" + strconv.Itoa(i)
		}
		d.Add("wasi", what, "no grant")
	}
	list, sum := d.List(), 0
	for _, e := range list {
		sum += e.Count
	}
	if sum != refusals || len(list) != maxDenials+1 {
		t.Errorf("%d refusals in %d entries, want %d in %d", sum, len(list), refusals, maxDenials+1)
	}
}
