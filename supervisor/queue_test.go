package supervisor

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func small() Bounds { return Bounds{Runs: 8, Memory: 100, Waiting: 16, Wait: time.Second} }

func mustEnter(t *testing.T, q *queue, uid uint32, runs int, memory int64) (leave func()) {
	t.Helper()
	leave, err := q.enter(t.Context(), uid, runs, memory)
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

func isBusy(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == CodeBusy
}

func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(small())
		var leaves []func()
		for range 7 {
			leaves = append(leaves, mustEnter(t, q, 1, 1, 1))
		}
		// The eighth place is not this user's, but another's, and root's.
		if _, err := q.enter(t.Context(), 1, 1, 1); !isBusy(err) {
			t.Errorf("beyond its share: %v", err)
		}
		mustEnter(t, q, 2, 1, 1)()
		leaves = append(leaves, mustEnter(t, q, 0, 1, 1))
		begun := time.Now()
		if _, err := q.enter(t.Context(), 2, 1, 1); !isBusy(err) || time.Since(begun) != time.Second {
			t.Errorf("when all is full: %v after %v, want busy after a second", err, time.Since(begun))
		}
		for _, leave := range leaves {
			leave()
			leave() // twice is once
		}
		if got, want := q.load(), (load{told: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// What asks for more memory than there is to promise runs alone, and small runs do not pass it for ever.
func TestQueueMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(small())
		first := mustEnter(t, q, 1, 1, 60)
		var order []string
		var mu sync.Mutex
		enter := func(name string, uid uint32, memory int64) {
			go func() {
				leave, err := q.enter(context.Background(), uid, 1, memory)
				if err != nil {
					t.Error(name, err)
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				leave()
			}()
			synctest.Wait()
		}
		enter("huge", 2, 1<<40)
		enter("small", 3, 1)
		if len(order) != 0 {
			t.Errorf("%v passed what waits for memory", order)
		}
		first()
		synctest.Wait()
		if len(order) != 2 || order[0] != "huge" {
			t.Errorf("order %v", order)
		}
	})
}

// One user's long line does not stand before another user's short one.
func TestQueueFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Bounds{Runs: 1, Memory: 100, Waiting: 100, Wait: time.Hour})
		leave := mustEnter(t, q, 0, 1, 1)
		var order []uint32
		var mu sync.Mutex
		ask := func(uid uint32) {
			go func() {
				leave, err := q.enter(context.Background(), uid, 1, 1)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, uid)
				mu.Unlock()
				time.Sleep(time.Second)
				leave()
			}()
			synctest.Wait()
		}
		for range 20 {
			ask(1)
		}
		ask(2)
		ask(3)
		ask(2)
		leave()
		time.Sleep(time.Minute)
		want := []uint32{1, 2, 3, 1, 2}
		for i, uid := range want {
			if order[i] != uid {
				t.Fatalf("order %v, want it to begin with %v", order, want)
			}
		}
	})
}

// A client that goes away leaves its line; a line that is too long turns away its user and nobody else.
func TestQueueLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Bounds{Runs: 1, Memory: 100, Waiting: 16, Wait: time.Hour})
		leave := mustEnter(t, q, 0, 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		for range 14 {
			go q.enter(ctx, 1, 1, 1)
		}
		synctest.Wait()
		if _, err := q.enter(t.Context(), 1, 1, 1); !isBusy(err) {
			t.Errorf("the line is too long: %v", err)
		}
		in := make(chan error, 1)
		go func() {
			_, err := q.enter(t.Context(), 2, 1, 1)
			in <- err
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if l := q.load(); l.waiting != 1 {
			t.Errorf("%d wait, want the other user's one", l.waiting)
		}
		leave()
		if err := <-in; err != nil {
			t.Error(err)
		}
	})
}

func TestDefaultBounds(t *testing.T) {
	for _, c := range []struct {
		memory      int64
		descriptors uint64
		runs        int
	}{{1 << 30, 256, 5}, {24 << 30, 65536, 1024}, {0, 16, 1}} {
		b := DefaultBounds(c.memory, c.descriptors)
		if b.Runs != c.runs || b.Memory < 4<<30 || b.Waiting < 1 || b.Wait <= 0 || b.Connections < b.Runs {
			t.Errorf("%d bytes and %d descriptors: %+v", c.memory, c.descriptors, b)
		}
	}
}
