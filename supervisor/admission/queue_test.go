package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func small() config.Bounds {
	return config.Bounds{Runs: 8, Memory: 100, Waiting: 16, Wait: time.Second}
}

func mustEnter(t *testing.T, q *Queue, uid uint32, runs int, memory int64) (leave func()) {
	t.Helper()
	leave, err := q.Enter(t.Context(), uid, "", runs, memory)
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

func isBusy(err error) bool {
	var e *problem.Error
	return errors.As(err, &e) && e.Code == problem.Busy
}

func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(small())
		var leaves []func()
		for range 7 {
			leaves = append(leaves, mustEnter(t, q, 1, 1, 1))
		}
		// The eighth place is not this user's, but another's, and root's.
		if _, err := q.Enter(t.Context(), 1, "", 1, 1); !isBusy(err) {
			t.Errorf("beyond its share: %v", err)
		}
		mustEnter(t, q, 2, 1, 1)()
		leaves = append(leaves, mustEnter(t, q, 0, 1, 1))
		begun := time.Now()
		if _, err := q.Enter(t.Context(), 2, "", 1, 1); !isBusy(err) ||
			time.Since(begun) != time.Second {
			t.Errorf("when all is full: %v after %v, want busy after a second", err,
				time.Since(begun))
		}
		for _, leave := range leaves {
			leave()
			leave() // twice is once
		}
		if got, want := q.Load(), (Load{Refused: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// asker asks a queue for runs that stay in until they are told to leave, and notes the order in
// which they get in.
type asker struct {
	t     *testing.T
	q     *Queue
	mu    sync.Mutex
	order []string
	leave map[string]func()
}

func (a *asker) ask(name string, uid uint32, memory int64) {
	a.t.Helper()
	go func() {
		leave, err := a.q.Enter(context.Background(), uid, "", 1, memory)
		a.mu.Lock()
		defer a.mu.Unlock()
		if err != nil {
			a.order = append(a.order, "no "+name)
			return
		}
		a.order, a.leave[name] = append(a.order, name), leave
	}()
	synctest.Wait()
}

func (a *asker) end(name string) {
	a.t.Helper()
	a.mu.Lock()
	leave := a.leave[name]
	a.mu.Unlock()
	if leave == nil {
		a.t.Fatalf("%s did not get in", name)
	}
	leave()
	synctest.Wait()
}

func (a *asker) want(order ...string) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.order, order) {
		a.t.Errorf("got in: %q, want %q", a.order, order)
	}
	a.order = nil
}

// What asks for more memory than one user may have counts as all of that. Beside what waits for
// memory there is room for small runs, and it waits for those alone that were in before it.
func TestQueueMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{t: t, q: New(small()), leave: map[string]func(){}}
		a.ask("first", 1, 60)
		a.ask("huge", 2, 1<<40)
		a.ask("small", 3, 10)
		a.want("first", "small")
		a.ask("beside", 4, 3)
		// Of the 13 that huge leaves.
		a.ask("too much", 5, 1)
		a.ask("nothing", 6, 0)
		a.want("beside", "nothing")
		// One in the other's place, without an end.
		for range 100 {
			a.end("small")
			a.ask("small", 3, 9)
		}
		a.end("first")
		if a.order[len(a.order)-1] != "huge" {
			t.Errorf("small runs passed it for ever: %q", a.order)
		}
		if l := a.q.Load(); l.Memory > 100 {
			t.Errorf("%d of 100 are promised", l.Memory)
		}
	})
}

// What waits for memory keeps no invocation of the same user's sessions waiting, which asks for
// none.
func TestQueueMemoryOfOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{t: t, q: New(small()), leave: map[string]func(){}}
		a.ask("session", 1, 80)
		a.ask("another session", 1, 20)
		a.ask("a run beside it", 1, 0)
		a.want("session")
		enter := func(session string) {
			t.Helper()
			leave, err := a.q.Enter(t.Context(), 1, session, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			leave()
		}
		for range 3 {
			enter("one")
			enter("two")
		}
		a.want()
		a.end("session")
		// Both at once, in any order.
		slices.Sort(a.order)
		a.want("a run beside it", "another session")
	})
}

// What gives up its claim on memory makes way for who came after it, before its user's next one.
func TestQueueClaimEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{t: t, q: New(small()), leave: map[string]func(){}}
		a.ask("first", 1, 60)
		a.ask("huge", 2, 80)
		time.Sleep(time.Second / 2)
		a.ask("huge again", 2, 80)
		a.ask("middle", 3, 30)
		a.want("first")
		time.Sleep(time.Second / 2)
		synctest.Wait()
		a.want("no huge", "middle")
		a.end("middle")
		a.end("first")
		a.want("huge again")
	})
}

// A user's sessions, which do nothing, hold no more memory than one user may: the rest is where
// everybody else gets in at once.
func TestQueueMemoryOfOneUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(small())
		mustEnter(t, q, 1, 0, 60)
		last := mustEnter(t, q, 1, 0, 20)
		_, err := q.Enter(t.Context(), 1, "", 0, 8)
		if !isBusy(err) || !strings.Contains(err.Error(), "as much in as one user may have") {
			t.Errorf("beyond its share: %v", err)
		}
		// A run in one of them.
		mustEnter(t, q, 1, 1, 0)
		mustEnter(t, q, 1, 0, 7)
		waits := make(chan error, 1)
		go func() {
			_, err := q.Enter(t.Context(), 1, "", 1, 20)
			waits <- err
		}()
		synctest.Wait()
		mustEnter(t, q, 2, 1, 10)()
		mustEnter(t, q, 0, 1, 13)()
		last()
		if err := <-waits; err != nil {
			t.Error(err)
		}
	})
}

// One user's long line does not stand before another user's short one.
func TestQueueFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(config.Bounds{Runs: 1, Memory: 100, Waiting: 100, Wait: time.Hour})
		leave := mustEnter(t, q, 0, 1, 1)
		var order []uint32
		var mu sync.Mutex
		ask := func(uid uint32) {
			go func() {
				leave, err := q.Enter(context.Background(), uid, "", 1, 1)
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
		synctest.Wait()
		want := []uint32{1, 2, 3, 1, 2}
		for i, uid := range want {
			if order[i] != uid {
				t.Fatalf("order %v, want it to begin with %v", order, want)
			}
		}
	})
}

// One session with many runs that wait keeps no other session of the same user waiting behind all
// of them, and one that asks again and again does not keep them waiting, either.
func TestQueueFairToSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(config.Bounds{Runs: 1, Memory: 100, Waiting: 200, Wait: time.Hour})
		leave := mustEnter(t, q, 0, 1, 1)
		var order []string
		var mu sync.Mutex
		ask := func(session string, times int) {
			go func() {
				for range times {
					leave, err := q.Enter(context.Background(), 1, session, 1, 1)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, session)
					mu.Unlock()
					time.Sleep(time.Second)
					leave()
				}
			}()
			synctest.Wait()
		}
		for range 100 {
			ask("crowded", 1)
		}
		ask("other", 3)
		ask("", 1)
		ask("other", 1)
		ask("", 1)
		leave()
		time.Sleep(time.Hour / 2)
		synctest.Wait()
		want := []string{"crowded", "other", "", "crowded", "other", "", "crowded", "other",
			"crowded", "other", "crowded", "crowded"}
		if len(order) != 106 || !slices.Equal(order[:len(want)], want) {
			t.Errorf("%d began, in the order %q, want it to begin with %q", len(order), order,
				want)
		}
	})
}

// The runs of a session that went away do not count against the session, and a session that has
// filled its part of the line keeps no other session out of it.
func TestQueueLinesOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(config.Bounds{Runs: 1, Memory: 100, Waiting: 16, Wait: time.Hour})
		leave := mustEnter(t, q, 0, 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		in := make(chan string, 16)
		ask := func(ctx context.Context, session string) {
			go func() {
				if leave, err := q.Enter(ctx, 1, session, 1, 1); err == nil {
					in <- session
					leave()
				}
			}()
			synctest.Wait()
		}
		// 7 of 8 parts of the 14 that a user may have.
		for range 12 {
			ask(ctx, "crowded")
		}
		if _, err := q.Enter(t.Context(), 1, "crowded", 1, 1); !isBusy(err) {
			t.Errorf("the line of the session is too long: %v", err)
		}
		ask(t.Context(), "other")
		ask(t.Context(), "other")
		cancel()
		synctest.Wait()
		ask(t.Context(), "crowded")
		if l := q.Load(); l.Waiting != 3 {
			t.Errorf("%d wait, want 3", l.Waiting)
		}
		leave()
		synctest.Wait()
		for _, want := range []string{"other", "crowded", "other"} {
			if got := <-in; got != want {
				t.Errorf("%q got in, want %q", got, want)
			}
		}
	})
}

// A client that goes away leaves its line; a line that is too long turns away its user and nobody
// else.
func TestQueueLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(config.Bounds{Runs: 1, Memory: 100, Waiting: 16, Wait: time.Hour})
		leave := mustEnter(t, q, 0, 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		for range 14 {
			go q.Enter(ctx, 1, "", 1, 1)
		}
		synctest.Wait()
		if _, err := q.Enter(t.Context(), 1, "", 1, 1); !isBusy(err) {
			t.Errorf("the line is too long: %v", err)
		}
		in := make(chan error, 1)
		go func() {
			_, err := q.Enter(t.Context(), 2, "", 1, 1)
			in <- err
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if l := q.Load(); l.Waiting != 1 {
			t.Errorf("%d wait, want the other user's one", l.Waiting)
		}
		leave()
		if err := <-in; err != nil {
			t.Error(err)
		}
	})
}
