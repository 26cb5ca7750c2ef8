package session

import (
	"testing"
	"testing/synctest"
	"time"
)

// A session with as many invocations as it may have, and fifty that wait for a place, keeps no place
// of another session. Its own begin one by one as places become free.
func TestSessionsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := noSessions()
		crowded, other := openedSession(s, "crowded"), openedSession(s, "other")
		const all = 52
		begun := make(chan func(), all)
		for range all {
			go func() {
				leave, err := crowded.invocations.enter(t.Context())
				if err != nil {
					t.Error(err)
				}
				begun <- leave
			}()
		}
		synctest.Wait()
		if len(begun) != cap(crowded.invocations.places) {
			t.Fatalf("%d have begun, places are %d", len(begun), cap(crowded.invocations.places))
		}
		began := time.Now()
		leave, err := other.invocations.enter(t.Context())
		if err != nil || time.Since(began) != 0 {
			t.Fatalf("the other session's waited %v: %v", time.Since(began), err)
		}
		leave()
		for range all {
			(<-begun)()
			synctest.Wait()
		}
		if n := len(crowded.invocations.places); n != 0 {
			t.Errorf("%d places are taken at the end", n)
		}
		for _, h := range []*session{crowded, other} {
			h.invocations.close(nil)
		}
	})
}
