package main

import (
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// agentSlack is how much later than asked for the kernel may wake a thread of the host of an agent
// (PR_SET_TIMERSLACK, prctl(2)). The default is 50 µs. While anything happens in a Go program, a
// thread of its runtime sleeps for 20 µs again and again to look after the others, and an agent is
// awake for hours: with the default this took a third of the processor time of an event.
const agentSlack = 500 * time.Microsecond

// slacken gives the threads of a process agentSlack. The threads that they make, and what they
// execute, inherit it. Without it the process takes more processor time, and nothing else changes.
func slacken(pid int) {
	// The pattern is a proper one.
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	for _, task := range tasks {
		_ = os.WriteFile("/proc/"+filepath.Base(task)+"/timerslack_ns",
			[]byte(strconv.FormatInt(agentSlack.Nanoseconds(), 10)), 0)
	}
}
