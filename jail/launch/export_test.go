package launch

// PID returns the number of the shim that was started ahead, or 0, when none is being started.
func (a *Ahead) PID() int {
	a.made.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		return 0
	}
	return a.next.cmd.Process.Pid
}
