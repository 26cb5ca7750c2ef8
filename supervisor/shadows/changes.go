package shadows

// Changes counts what a run did to its workspace.
type Changes struct {
	Added    int64 `json:"added"`
	Modified int64 `json:"modified"`
	Deleted  int64 `json:"deleted"`
}

// Any reports whether something changed.
func (c Changes) Any() bool { return c != Changes{} }
