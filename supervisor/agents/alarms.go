package agents

import "time"

// alarmLook is how often alarms are compared with the clock: a clock that is set, or a host that was
// suspended, moves the time when an alarm is due without a timer of this process noticing.
const alarmLook = 5 * time.Second

// fireAlarms makes events of alarms that are due, until Close.
func (a *Agents) fireAlarms() {
	for {
		woken, next, err := a.Store.Fire()
		if err != nil {
			a.o.Log.Error("alarms cannot be read", "error", err)
			next = a.o.Now().Add(alarmLook)
		}
		a.wake(woken...)
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(min(max(next.Sub(a.o.Now()), 0), alarmLook))
		}
		select {
		case <-timer:
		case <-a.alarms:
		case <-a.ctx.Done():
			return
		}
	}
}

// nudge wakes the goroutine that waits on c, which has room for one element.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
