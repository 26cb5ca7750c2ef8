package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

// What a policy is to a reader, word for word: errors, explanations and records show it.
func TestTexts(t *testing.T) {
	limits := policy.FetchLimits{Requests: 1, BytesIn: 2 << 20, BytesOut: 7, Concurrent: 8,
		Timeout: time.Minute}
	rule := policy.FetchRule{Host: host(t, "**.example.com"), Ports: policy.Ports{{Low: 1,
		High: 65535}}, Methods: policy.MustGlobs("POST", "GET"), Paths: policy.MustGlobs("/**")}
	full := rule
	full.Credential, full.Types, full.WebSocket, full.TLS, full.Bounds = "key",
		policy.MustGlobs("text/*"), true, policy.TLSOpaque, policy.FetchBounds{Requests: 3,
			Timeout: time.Second}
	deny := policy.FetchDeny{Host: host(t, "*.a.example.com"), Ports: policy.Ports{{Low: 80,
		High: 90}, {Low: 443, High: 443}}, Methods: policy.MustGlobs("*"),
		Paths: policy.MustGlobs("/x")}
	const plain = "**.example.com ports [*] methods [GET POST] paths [/**]"
	const within = " within requests=1 bytes_in=2MiB bytes_out=7B concurrent=8 timeout=1m"
	for _, tt := range []struct {
		part interface{ String() string }
		want string
	}{
		{policy.Fetch{}, "∅ within requests=0 bytes_in=0B bytes_out=0B concurrent=0 timeout=0s"},
		{policy.Fetch{Allow: []policy.FetchRule{rule}, Limits: limits}, "[" + plain + "]" + within},
		{policy.Fetch{Allow: []policy.FetchRule{full}, Deny: []policy.FetchDeny{deny},
			Limits: limits, Rate: 5, Mode: policy.FetchReport},
			"[" + plain +
				" credential key types [text/*] websocket tls opaque requests 3 timeout 1s] but " +
				"not [*.a.example.com ports [80-90 443] methods [*] paths [/x]]" + within +
				" rate=5 mode=report"},
		{policy.Fetch{Mode: policy.FetchReport, Limits: limits},
			"∅ within requests=0 bytes_in=0B bytes_out=0B concurrent=0 timeout=0s"},
		{policy.Ports{}, "∅"},
		{policy.Ports{{Low: 5, High: 4}}, "∅"},
		{policy.Globs{}, "∅"},
		{policy.Glob{}, "∅"},
		{policy.MustGlobs("b", "a/*/**", "a/**/*", "a/**"), "[a/** b]"},
		{policy.MustGlob("a/*/**/*.c"), "a/*/**/*.c"},
		{policy.MustGlob("a/**/*/b"), "a/*/**/b"},
		{policy.MustGlob("*/**"), "**"},
		{policy.MustGlob("*/*/**"), "*/*/**"},
		{policy.MustGlob("a/*/**"), "a/*/**"},
		{policy.Host{}, "∅"},
		{policy.AnyHost, "*"},
		{host(t, "*.example.com"), "*.example.com"},
		{policy.Rights(0), "∅"},
		{policy.Read, "read"},
		{policy.Read | policy.Exec, "read+exec"},
		{policy.Read | policy.Write, "write"},
		{policy.Read | policy.Exec | policy.Write, "write+exec"},
		{policy.Tmpfs, "tmpfs"},
		{policy.Write, "write"},
		{policy.Exec, "exec"},
		{policy.Exec | policy.Tmpfs, "exec|tmpfs"},
		{policy.Mounts{}, "∅"},
		{policy.Mount{Target: "/tmp", Access: policy.Tmpfs}, "/tmp tmpfs"},
		{policy.Mount{Source: "/usr", Target: "/u", Access: policy.Read}, "/u from /usr read"},
		{policy.Mount{Source: "/usr", Access: policy.Read}, "anywhere from /usr read"},
		{policy.Syscalls{}, "∅"},
		{policy.Syscalls{Groups: []string{"wasi", "no such group", "native", "wasi"}},
			"[native wasi]"},
		{policy.Vars{}, "∅"},
		{policy.Vars{Any: true}, "any"},
		{policy.Vars{Values: map[string]string{"B": "x y", "A": ""}}, `{A="" B="x y"}`},
		{policy.Env{Pass: policy.MustGlobs("TERM")}, "set ∅ pass [TERM] allow ∅"},
		{policy.Tools{Allow: policy.MustGlobs("a/*")}, "allow [a/*] modules ∅ native ∅"},
		{policy.Workspace{Access: policy.WorkspaceRead, Commit: policy.CommitAuto,
			Protect: []string{"a"}, Hide: []string{"b", "a", "b"}},
			`access read hide ["a" "b"] protect [] commit never`},
		{policy.Workspace{Access: policy.WorkspaceShadow, Commit: policy.CommitAsk,
			Protect: []string{"a"}}, `access shadow hide [] protect ["a"] commit ask`},
		{policy.WorkspaceAccess(7), "invalid(7)"},
		{policy.Audit{Files: policy.FilesChanges}, "files changes"},
		{policy.Audit{Files: 9}, "files opens"},
		{policy.Connect{Host: "a.example", Port: 443, Tunnel: true},
			"connect tunnel a.example:443"},
		{policy.Connect{Host: "a.example", Port: 443, Method: "GET", Path: "/x", WebSocket: true},
			"connect websocket GET a.example:443/x"},
	} {
		if got := tt.part.String(); got != tt.want {
			t.Errorf("%T: %s\nwant %s", tt.part, got, tt.want)
		}
	}
}

// Each word of the language is read as what it is written from, and no other is.
func TestWords(t *testing.T) {
	if got, want := strings.Join(policy.Rights(0).Choices(), " "),
		"read read+exec write write+exec tmpfs cache"; got != want {
		t.Errorf("rights are %q, want %q", got, want)
	}
	for _, w := range policy.Rights(0).Choices() {
		var r policy.Rights
		if err := r.UnmarshalText([]byte(w)); err != nil || r.String() != w {
			t.Errorf("%q is read as %s, %v", w, r, err)
		}
	}
	var r policy.Rights
	var mode policy.FetchMode
	var tls policy.TLSMode
	var access policy.WorkspaceAccess
	for _, bad := range []string{"", "Read", "exec", "read|exec", "invalid(7)"} {
		for _, v := range []interface{ UnmarshalText([]byte) error }{&r, &mode, &tls, &access} {
			if v.UnmarshalText([]byte(bad)) == nil {
				t.Errorf("%q is taken for a %T", bad, v)
			}
		}
	}
}

// The zero of a set and an empty one are one, also to what compares them field by field.
func TestEmptyIsNil(t *testing.T) {
	if v := (policy.Vars{Values: map[string]string{}}).Normal(); v.Values != nil {
		t.Errorf("%#v", v)
	}
	if g := (policy.Globs{}).Normal(); g != nil {
		t.Errorf("%#v", g)
	}
	if f := (policy.Fetch{Allow: []policy.FetchRule{{}}, Rate: 5,
		Mode: policy.FetchReport}).Normal(); f.Allow != nil || f.Rate != 0 ||
		f.Mode != policy.FetchEnforce {
		t.Errorf("%#v", f)
	}
	if s := (policy.Syscalls{Groups: []string{"x"}}).Normal(); s.Groups != nil {
		t.Errorf("%#v", s)
	}
	if w := (policy.Workspace{Access: policy.WorkspaceShadow, Hide: []string{},
		Protect: []string{}}).Normal(); w.Hide != nil || w.Protect != nil {
		t.Errorf("%#v", w)
	}
}
