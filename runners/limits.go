package runners

// LimitMet is a limit that the tool reached by a failed call, and that is not visible from outside.
// The report comes from inside, so the host takes the limit itself from the policy.
type LimitMet struct {
	// As in the policy: open_files, file_size, workspace, workspace_files.
	Name string `json:"name"`
	// The most that was in use when it was met.
	Peak  int64 `json:"peak"`
	Count int64 `json:"count"` // how often
}

// LimitsMet collects them, each once. Its zero value is ready; it is for one goroutine.
type LimitsMet []LimitMet

// Add counts a reached limit, or the count of another LimitsMet.
func (l *LimitsMet) Add(m LimitMet) {
	for i := range *l {
		if known := &(*l)[i]; known.Name == m.Name {
			known.Peak, known.Count = max(known.Peak, m.Peak), known.Count+m.Count
			return
		}
	}
	*l = append(*l, m)
}
