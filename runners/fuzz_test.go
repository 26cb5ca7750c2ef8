package runners

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzOrder reads what jail-init is told and what it answers: never a panic, and what is taken says
// the same when it is written again.
func FuzzOrder(f *testing.F) {
	for _, v := range []any{
		Order{Compile: true, Invocation: Invocation{Args: Texts{"compile"}, CacheDir: "/c"}},
		Order{Invocation: Invocation{Args: Texts{"ls", "\xff"}, Env: Texts{"A=b"}, Cwd: "/w",
			Mounts: []Mount{{Path: "/w", Write: true, Hide: []string{"*.pem"}}},
			Layout: LayoutRooted}},
		Answer{Failure: "no"}, Answer{Report: &Report{Denied: []Denial{{Layer: "wasi",
			What: "read /x", Rule: "outside", Count: 3}}, Trap: &Trap{"memory", "x"},
			MemoryRefused: &MemoryRefused{1, 2}}},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(
		`{"invocation":{"args":[{"base64":"/w=="}],"env":["=x"],"mounts":[{"path":"/a"},{"path":"/a/b"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, v := range [][2]any{{&Order{}, &Order{}}, {&Answer{}, &Answer{}}} {
			if json.Unmarshal(text, v[0]) != nil {
				continue
			}
			first, err := json.Marshal(v[0])
			if err == nil {
				err = json.Unmarshal(first, v[1])
			}
			second, _ := json.Marshal(v[1])
			if err != nil || string(first) != string(second) {
				t.Errorf("%T: %s is read again as %s, %v", v[0], first, second, err)
			}
		}
		var o Order
		if json.Unmarshal(text, &o) != nil {
			return
		}
		err := o.Invocation.Validate()
		if err != nil && !errors.Is(err, errInvocation) {
			t.Errorf("%v is no ErrInvocation", err)
		}
		for _, m := range o.Invocation.Mounts {
			if err == nil && (m.Path == "" || m.Path[0] != '/' || strings.Contains(m.Path+"/",
				"/../") || strings.IndexByte(m.Path, 0) >= 0) {
				t.Errorf("a mount at %q passes", m.Path)
			}
		}
	})
}

// FuzzDenials: bytes that a tool chose stand in a record as printable text of bounded length.
func FuzzDenials(f *testing.F) {
	f.Add("read /\x1b[31m\n", 3)
	f.Add(strings.Repeat("é\xff", 400), 70)
	f.Add("\u202e\u2028\U000e0041", 1)
	f.Fuzz(func(t *testing.T, what string, n int) {
		var d Denials
		for i := range min(max(n, 1), 3*maxDenials) {
			d.Add("wasi", what+strconv.Itoa(i%(maxDenials+7)), what)
		}
		list := d.List()
		if len(list) > maxDenials+1 {
			t.Errorf("%d entries", len(list))
		}
		total := 0
		for _, e := range list {
			total += e.Count
			for _, text := range []string{e.What, e.Rule} {
				if !utf8.ValidString(text) || len(text) > 12*maxDenialBytes ||
					strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsGraphic(r) }) {
					t.Errorf("%q is recorded as %q", what, text)
				}
			}
		}
		if total != min(max(n, 1), 3*maxDenials) {
			t.Errorf("%d were refused, %d are counted", n, total)
		}
	})
}
