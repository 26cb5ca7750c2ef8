package profiles_test

import (
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/profiles"
)

// What a run costs before anything is started.
func BenchmarkResolve(b *testing.B) {
	p := shippedPolicy(b)
	for b.Loop() {
		eff, err := policy.Resolve(
			policy.Layer{Name: "ceiling", Policy: policy.Top()}, policy.Layer{Name: "profile",
				Policy: p}, policy.Layer{Name: "request", Policy: policy.NewRequest().Policy()})
		if err != nil {
			b.Fatal(err)
		}
		_ = eff.Digest()
	}
}

func BenchmarkDecide(b *testing.B) {
	eff, err := policy.Resolve(policy.Layer{Name: "ceiling", Policy: policy.Top()},
		policy.Layer{Name: "profile", Policy: shippedPolicy(b)})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		eff.Decide(policy.Tool{Bundle: "core-utils", Command: "grep"})
	}
}

func BenchmarkHidden(b *testing.B) {
	hidden := policy.Hidden([]string{".env", "**/*.pem", "secrets/**"})
	for b.Loop() {
		hidden.Match("src/runtime/internal/atomic/types.go")
	}
}

func BenchmarkProtected(b *testing.B) {
	for b.Loop() {
		policy.Protected("src/runtime/internal/atomic/types.go")
	}
}

func shippedPolicy(tb testing.TB) policy.Policy {
	tb.Helper()
	s, err := profiles.Load("")
	if err != nil {
		tb.Fatal(err)
	}
	p, err := s.Get("default")
	if err != nil {
		tb.Fatal(err)
	}
	return p.File.Policy
}
