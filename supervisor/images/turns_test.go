package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestTurns: nobody works on a key that another works on, and other keys do not wait, up to the bound.
func TestTurns(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	turns := newTurns(2)
	take := func(key string) func() {
		t.Helper()
		done, err := turns.take(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	waits := func(key string) {
		t.Helper()
		if _, err := turns.take(over, key); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want to wait", key, err)
		}
	}
	a, b := take("a"), take("b")
	waits("a")
	waits("c")
	b()
	c := take("c")
	a()
	a = take("a")
	a()
	c()
	// A caller that gave up holds nothing.
	take("c")()
}

// TestUsedAtOnce: runs of two daemons that use an image for the first time at once all have it, and it
// is there once.
func TestUsedAtOnce(t *testing.T) {
	m, s := newMaker(t), newStore(t)
	m.index(m.simple("x"))
	other, err := Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	other.bounds = s.bounds
	var all sync.WaitGroup
	roots := make([]string, 16)
	for i := range roots {
		all.Go(func() {
			h, err := []*Store{s, other}[i%2].Use(t.Context(), self(), Reference{Dir: m.dir})
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Close()
			if text, err := os.ReadFile(filepath.Join(h.Root, "bin/x")); err != nil || string(text) != "x" {
				t.Errorf("%q, %v", text, err)
			}
			roots[i] = h.Root
		})
	}
	all.Wait()
	for _, root := range roots {
		if root != roots[0] {
			t.Errorf("roots %q", roots)
		}
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, fmt.Sprint(os.Geteuid())))
	if err != nil || len(entries) != 1 {
		t.Errorf("the store has %v, %v", entries, err)
	}
}

// TestUnpackedApart: an image does not wait for another one that is being unpacked. The image that is
// being unpacked is the control.
func TestUnpackedApart(t *testing.T) {
	s, first, second := newStore(t), newMaker(t), newMaker(t)
	made := first.simple("first")
	first.index(made)
	second.index(second.simple("second"))
	done, err := s.unpacking.take(t.Context(),
		s.folder(fmt.Sprint(os.Geteuid()), made["digest"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.use(t, second.dir); err != nil {
		t.Error(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Use(over, self(), Reference{Dir: first.dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want to wait", err)
	}
	done()
	if _, err := s.use(t, first.dir); err != nil {
		t.Error(err)
	}
}
