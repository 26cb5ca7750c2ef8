package ending

import (
	"testing"
	"time"
)

// TestPauses: what a run waits is no part of its wall time, however many of its requests wait at one
// time, and only up to a bound.
func TestPauses(t *testing.T) {
	var p Pauses
	begun := time.Now().Add(-time.Hour)
	p.Note(true)
	p.Note(true)
	p.begun = time.Now().Add(-2 * time.Minute)
	if left := p.Left(); left > maxPause-2*time.Minute || left < maxPause-time.Hour/2 {
		t.Errorf("%s are left after two minutes of two requests", left)
	}
	p.Note(false)
	if p.sum != 0 {
		t.Errorf("a pause of %s while a request waits", p.sum)
	}
	p.Note(false)
	if p.sum < 2*time.Minute {
		t.Errorf("a pause of %s", p.sum)
	}
	p.Note(true)
	p.begun = time.Now().Add(-50 * time.Minute)
	if left := p.Left(); left != 0 {
		t.Errorf("%s are left after 52 minutes", left)
	}
	if passed := p.since(begun); passed < time.Hour-maxPause {
		t.Errorf("%s of an hour are wall time", passed)
	}
	// The limit is reached although a request waits.
	if _, ok := p.Await(begun, 49*time.Minute, nil); !ok {
		t.Error("the run goes on")
	}
}
