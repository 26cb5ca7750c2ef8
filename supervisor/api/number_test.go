package api

import (
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/wire"
)

// A client that names another API is refused before its request is read; one that names none is one
// from before the header.
func TestSameNumber(t *testing.T) {
	for number, ok := range map[string]bool{"": true, strconv.Itoa(Number): true,
		strconv.Itoa(Number + 1): false, "x": false, "01": false} {
		r := httptest.NewRequest("POST", PathRuns, nil)
		if number != "" {
			r.Header.Set(wire.NumberHeader, number)
		}
		if err := sameNumber(r); (err == nil) != ok {
			t.Errorf("%q: %v", number, err)
		}
	}
}
