package naming

import (
	"testing"

	"github.com/jail-sandbox/jail/supervisor/caller"
)

// A request without a name must not look like one with a name: what is named is listed and looked
// for on disk, also where it lasts a millisecond.
func TestTakeWithoutAName(t *testing.T) {
	id, done, err := (&Namer{}).Take(caller.Caller{}, "")
	if id != "" || err != nil {
		t.Fatalf("%q %v", id, err)
	}
	done()
}
