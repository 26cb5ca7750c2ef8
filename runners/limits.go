package runners

// A LimitMet is a limit that the tool came to know as an error of a call, and nothing outside did. It is said from inside, so the host
// takes the limit itself from the policy.
type LimitMet struct {
	Name  string `json:"name"`  // as in the policy: open_files, file_size, workspace, workspace_files
	Peak  int64  `json:"peak"`  // the most that was in use when it was met
	Count int64  `json:"count"` // how often
}

// LimitsMet collects them, each once. Its zero value is ready; it is for one goroutine.
type LimitsMet []LimitMet

// Add counts a limit that was met, or what another has counted of it.
func (l *LimitsMet) Add(m LimitMet) {
	for i := range *l {
		if known := &(*l)[i]; known.Name == m.Name {
			known.Peak, known.Count = max(known.Peak, m.Peak), known.Count+m.Count
			return
		}
	}
	*l = append(*l, m)
}
