package agents

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
)

// TestPlacedAtOneTime: a built-in agent that is put on several channels at one time is on all of them.
func TestPlacedAtOneTime(t *testing.T) {
	const channels = 8
	w := newWorld(t)
	w.start()
	of := builtin.All()[0]
	var all sync.WaitGroup
	for n := range channels {
		all.Go(func() {
			if _, err := placeOn(w.Agents, of, fmt.Sprint("c", n), builtin.Place{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	places, err := builtinsOf(w.o.State).places(of.Name)
	if err != nil || len(places) != channels {
		t.Errorf("places %v, %v", places, err)
	}
	if on, err := w.Of(t.Context(), of.Name); err != nil || len(on) != channels {
		t.Errorf("it is on %d channels, %v", len(on), err)
	}
}
