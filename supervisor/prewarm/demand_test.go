package prewarm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A fake stands for a jail.
type fake struct {
	of    string
	world *world

	mu     sync.Mutex
	ended  bool
	closed int
}

func (f *fake) Ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

func (f *fake) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	f.world.add(-1)
}

// A world counts what there is.
type world struct {
	mu        sync.Mutex
	now, most int
	made      []*fake
	fail      atomic.Bool
}

// has says how many jails there are, how many there were at most and how many were ever made.
func (w *world) has() (now, most, made int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now, w.most, len(w.made)
}

func (w *world) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += n
	w.most = max(w.most, w.now)
}

func (w *world) make(ctx context.Context, spec string) (*fake, error) {
	time.Sleep(20 * time.Millisecond)
	if w.fail.Load() || ctx.Err() != nil {
		return nil, errors.New("no")
	}
	w.add(1)
	f := &fake{of: spec, world: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = append(w.made, f)
	return f, nil
}

func fits(*fake) bool { return true }

// try runs a test in a bubble of its own time, and wants nothing left in the end.
func try(t *testing.T, o options[string, *fake],
	test func(t *testing.T, w *world, p *demand[string, *fake])) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		o.make = w.make
		p := newDemand(o)
		test(t, w, p)
		p.Close()
		for _, f := range w.made {
			if f.closed > 1 {
				t.Errorf("a jail was ended %d times", f.closed)
			}
		}
		if now, _, _ := w.has(); now != 0 {
			t.Errorf("%d jails are left", now)
		}
		if _, ok := p.Claim(t.Context(), "a", "a", fits); ok {
			t.Error("a closed pool gives out jails")
		}
	})
}

// claim takes a jail and ends it, as a run does.
func claim(p *demand[string, *fake], key string) bool {
	f, ok := p.Claim(context.Background(), key, key, fits)
	if ok {
		f.Close()
	}
	return ok
}

func TestAJailIsThereTheNextTime(t *testing.T) {
	try(t, options[string, *fake]{size: 4}, func(t *testing.T, w *world, p *demand[string, *fake]) {
		if claim(p, "a") {
			t.Error("there was one before anybody asked")
		}
		time.Sleep(time.Second)
		if n := p.Stats().Prewarmed; n != 1 {
			t.Errorf("%d wait", n)
		}
		if claim(p, "b") {
			t.Error("it is of another kind")
		}
		if !claim(p, "a") || claim(p, "a") {
			t.Error("want it once")
		}
		time.Sleep(time.Second)
		if s := p.Stats(); s.Hits != 1 || s.Misses != 3 || s.Failed != 0 || s.Kinds != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// It grows with what is asked for at one time, never above its size, and shrinks to one and then to
// none.
func TestItFollowsDemand(t *testing.T) {
	try(t, options[string, *fake]{size: 4}, func(t *testing.T, w *world, p *demand[string, *fake]) {
		for range 10 {
			claim(p, "a")
		}
		time.Sleep(500 * time.Millisecond)
		if _, most, _ := w.has(); p.Stats().Prewarmed != 4 || most != 4 {
			t.Errorf("%+v, %d did", p.Stats(), most)
		}
		time.Sleep(linger + 2*tick)
		if n := p.Stats().Prewarmed; n != 1 {
			t.Errorf("%d wait after a while", n)
		}
		time.Sleep(idle)
		if s := p.Stats(); s.Prewarmed != 0 || s.Kinds != 0 {
			t.Errorf("after all: %+v", s)
		}
	})
}

// Where there is no room for all kinds, those that were asked for last have it.
func TestKindsShareTheRoom(t *testing.T) {
	try(t, options[string, *fake]{size: 2}, func(t *testing.T, w *world, p *demand[string, *fake]) {
		for n := range 5 {
			claim(p, fmt.Sprint(n))
			time.Sleep(2 * time.Second)
		}
		if claim(p, "0") || !claim(p, "3") || !claim(p, "4") {
			t.Error("the wrong ones stand")
		}
		if _, most, _ := w.has(); most > 2 {
			t.Errorf("%d stood at one time", most)
		}
	})
}

func TestDrain(t *testing.T) {
	try(t, options[string, *fake]{size: 2}, func(t *testing.T, w *world, p *demand[string, *fake]) {
		claim(p, "a")
		time.Sleep(time.Second)
		p.Drain()
		synctest.Wait()
		if now, _, _ := w.has(); now != 0 || claim(p, "a") {
			t.Error("something stands after it was drained")
		}
		// What is being made meanwhile is for nobody.
		time.Sleep(time.Second)
		claim(p, "a")
		time.Sleep(10 * time.Millisecond)
		p.Drain()
		time.Sleep(time.Second)
		if now, _, _ := w.has(); p.Stats().Prewarmed != 0 || now != 0 {
			t.Errorf("%+v, %d are there", p.Stats(), now)
		}
	})
}

// What it was made from may have changed without anybody telling.
func TestOutdated(t *testing.T) {
	var outdated atomic.Bool
	o := options[string, *fake]{size: 2, outdated: func() bool { return outdated.Swap(false) }}
	try(t, o, func(t *testing.T, w *world, p *demand[string, *fake]) {
		claim(p, "a")
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		outdated.Store(true)
		if claim(p, "a") {
			t.Error("an outdated one was given out")
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		outdated.Store(true)
		time.Sleep(2 * tick)
		if s := p.Stats(); s.Prewarmed != 0 {
			t.Errorf("without a claim: %+v", s)
		}
	})
}

// One that has ended, or does not fit, is given to nobody.
func TestOnlyWhatFits(t *testing.T) {
	try(t, options[string, *fake]{size: 2}, func(t *testing.T, w *world, p *demand[string, *fake]) {
		claim(p, "a")
		time.Sleep(time.Second)
		if _, ok := p.Claim(t.Context(), "a", "a", func(*fake) bool { return false }); ok {
			t.Error("it does not fit")
		}
		time.Sleep(time.Second)
		w.mu.Lock()
		last := w.made[len(w.made)-1]
		w.mu.Unlock()
		last.mu.Lock()
		last.ended = true
		last.mu.Unlock()
		if claim(p, "a") {
			t.Error("it has ended")
		}
		time.Sleep(2 * time.Second)
		if !claim(p, "a") {
			t.Error("no other was made")
		}
	})
}

// What cannot be made is not tried all the time.
func TestFailures(t *testing.T) {
	try(t, options[string, *fake]{size: 2}, func(t *testing.T, w *world, p *demand[string, *fake]) {
		w.fail.Store(true)
		for range 10 {
			claim(p, "a")
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := p.Stats().Failed; n != 1 {
			t.Errorf("%d attempts", n)
		}
		w.fail.Store(false)
		time.Sleep(retry)
		claim(p, "a")
		time.Sleep(time.Second)
		if !claim(p, "a") {
			t.Error("it is not tried again")
		}
	})
}

// It stands back for runs, but not for ever.
func TestItStandsBack(t *testing.T) {
	try(t, options[string, *fake]{size: 2, busy: func() bool { return true }}, func(t *testing.T,
		w *world, p *demand[string, *fake]) {
		claim(p, "a")
		time.Sleep(patience / 2)
		synctest.Wait()
		if _, _, made := w.has(); made != 0 {
			t.Error("it does not stand back")
		}
		time.Sleep(patience)
		synctest.Wait()
		if _, _, made := w.has(); made != 1 {
			t.Error("it waits for ever")
		}
	})
}

func TestItForgetsKinds(t *testing.T) {
	try(t, options[string, *fake]{size: 2}, func(t *testing.T, w *world, p *demand[string, *fake]) {
		for n := range 3 * maxKinds {
			claim(p, fmt.Sprint(n))
		}
		time.Sleep(2 * tick)
		if s := p.Stats(); s.Kinds > maxKinds || s.Prewarmed > 2 {
			t.Errorf("%+v", s)
		}
	})
}

// Kinds that come faster than jails are made keep neither their number from being bounded nor what
// has ended from being taken away.
func TestKindsWithoutEnd(t *testing.T) {
	try(t, options[string, *fake]{size: 8, busy: func() bool { return true }}, func(t *testing.T,
		w *world, p *demand[string, *fake]) {
		claim(p, "first")
		time.Sleep(patience + tick)
		w.mu.Lock()
		first := w.made[0]
		w.mu.Unlock()
		for n := range 3 * maxKinds {
			claim(p, fmt.Sprint(n))
			time.Sleep(step)
			if s := p.Stats(); s.Kinds > maxKinds {
				t.Errorf("after %d: %+v", n, s)
				return
			}
			first.mu.Lock()
			switch n {
			case 10:
				first.ended = true
			case maxKinds / 2:
				// It is not yet the oldest of too many.
				if first.closed != 1 {
					t.Error("what has ended by itself still stands")
				}
			}
			first.mu.Unlock()
		}
	})
}

// A kind may have bounds of its own. What there is no room for is made when there is, and that
// there was none is no failure.
func TestRoom(t *testing.T) {
	var most, late atomic.Int32
	o := options[string, *fake]{size: 4, capacity: func(spec string,
		prewarmed int) bool {
		return spec != "a" || prewarmed < int(most.Load())
	}}
	try(t, o, func(t *testing.T, w *world, p *demand[string, *fake]) {
		inner := p.o.make
		// It has gone by then.
		p.o.make = func(ctx context.Context, spec string) (*fake, error) {
			if late.Add(-1) >= 0 {
				return nil, fmt.Errorf("late: %w", errNoCapacity)
			}
			return inner(ctx, spec)
		}
		for range 3 {
			claim(p, "a")
		}
		claim(p, "b")
		time.Sleep(2 * tick)
		if _, _, made := w.has(); made != 1 || claim(p, "a") {
			t.Errorf("%d were made, want the one of b", made)
		}
		late.Store(2)
		most.Store(1)
		p.Wake()
		time.Sleep(tick / 2)
		if s := p.Stats(); s.Prewarmed != 2 || s.Failed != 0 || !claim(p, "a") || claim(p, "a") {
			t.Errorf("%+v", s)
		}
	})
}

// What is forgotten ends, and what is being made of it is for nobody; other kinds stay.
func TestForget(t *testing.T) {
	try(t, options[string, *fake]{size: 4}, func(t *testing.T, w *world, p *demand[string, *fake]) {
		claim(p, "a")
		claim(p, "b")
		time.Sleep(time.Second)
		isA := func(spec string) bool { return spec == "a" }
		p.Forget(isA)
		synctest.Wait()
		if now, _, _ := w.has(); now != 1 || claim(p, "a") || !claim(p, "b") {
			t.Errorf("%d are left", now)
		}
		time.Sleep(10 * time.Millisecond) // one is being made
		p.Forget(isA)
		time.Sleep(time.Second)
		if s := p.Stats(); s.Prewarmed != 1 || s.Kinds != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// What is taken is the taker's, and of the kind that was asked for longest ago.
func TestTake(t *testing.T) {
	try(t, options[string, *fake]{size: 4}, func(t *testing.T, w *world, p *demand[string, *fake]) {
		for _, key := range []string{"a", "b", "c"} {
			claim(p, key)
			time.Sleep(100 * time.Millisecond)
		}
		for _, want := range []string{"a", "c"} {
			f, ok := p.Take(func(spec string) bool { return spec != "b" })
			if !ok || f.of != want {
				t.Fatalf("%v, %v, want one of %s", f, ok, want)
			}
			f.Close()
		}
		if f, ok := p.Take(func(spec string) bool { return spec == "none" }); ok {
			t.Errorf("%v", f)
		}
	})
}

// Many callers, drained and closed in the middle: each jail is one caller's or nobody's.
func TestManyCallers(t *testing.T) {
	w := &world{}
	p := newDemand(options[string, *fake]{size: 8, make: func(_ context.Context, s string) (*fake,
		error) {
		w.add(1)
		return &fake{of: s, world: w}, nil
	}})
	given := sync.Map{}
	var callers sync.WaitGroup
	for n := range 8 {
		callers.Go(func() {
			for i := range 500 {
				key := fmt.Sprint((n + i) % 3)
				if f, ok := p.Claim(t.Context(), key, key, fits); ok {
					if _, twice := given.LoadOrStore(f, true); twice || f.of != key {
						t.Errorf("%s: twice %v, of kind %s", key, twice, f.of)
					}
					f.Close()
				}
				if i%100 == 99 {
					p.Drain()
				}
			}
		})
	}
	callers.Wait()
	p.Close()
	if w.now != 0 {
		t.Errorf("%d jails are left", w.now)
	}
}

// A claim waits for the jail of its kind that is being made, where the kind awaits it, and for no
// longer than it takes, than its context lasts and than awaitMost.
func TestClaimAwaitsTheOneBeingMade(t *testing.T) {
	awaits := func(spec string) bool { return spec == "a" }
	try(t, options[string, *fake]{size: 4, awaits: awaits}, func(t *testing.T, w *world,
		p *demand[string, *fake]) {
		claim(p, "a")
		// It is being made, for 20 ms.
		synctest.Wait()
		if begun := time.Now(); !claim(p, "a") || time.Since(begun) != 20*time.Millisecond {
			t.Errorf("no jail after %v", time.Since(begun))
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, ok := p.Claim(ctx, "a", "a", fits); ok || ctx.Err() == nil {
			t.Error("the claim did not end with its context")
		}
		time.Sleep(time.Minute)
		p.Drain()
		claim(p, "b")
		synctest.Wait()
		if begun := time.Now(); claim(p, "b") || time.Since(begun) != 0 {
			t.Errorf("a kind that awaits nothing: waited %v", time.Since(begun))
		}
		time.Sleep(time.Minute)
		p.Drain()
		w.fail.Store(true)
		claim(p, "a")
		synctest.Wait()
		if begun := time.Now(); claim(p, "a") || time.Since(begun) != 20*time.Millisecond {
			t.Errorf("one that failed: waited %v", time.Since(begun))
		}
	})
}

// TestWakeEndsTheYield: a jail is made as soon as the pool is woken after the last run has ended,
// and not at the pool's next look at the runs.
func TestWakeEndsTheYield(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	try(t, options[string, *fake]{size: 4, busy: busy.Load}, func(t *testing.T, w *world,
		p *demand[string, *fake]) {
		claim(p, "a")
		time.Sleep(step + step/2)
		p.Wake()
		synctest.Wait()
		busy.Store(false)
		p.Wake()
		// The jail takes 20 ms.
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if _, _, made := w.has(); made != 1 {
			t.Errorf("%d jails were made", made)
		}
	})
}
