package audit

// Type returns the record type of each event.
func (RunStarted) Type() Type         { return TypeRunStarted }
func (Exec) Type() Type               { return TypeExec }
func (File) Type() Type               { return TypeFile }
func (Denied) Type() Type             { return TypeDenied }
func (Limit) Type() Type              { return TypeLimit }
func (RunFinished) Type() Type        { return TypeRunFinished }
func (WorkspaceChanged) Type() Type   { return TypeWorkspaceChanged }
func (WorkspaceCommitted) Type() Type { return TypeWorkspaceCommitted }
func (WorkspaceDiscarded) Type() Type { return TypeWorkspaceDiscarded }
func (WorkspaceReverted) Type() Type  { return TypeWorkspaceReverted }
func (PolicyLoaded) Type() Type       { return TypePolicyLoaded }
func (ToolInstalled) Type() Type      { return TypeToolInstalled }
func (ToolRemoved) Type() Type        { return TypeToolRemoved }
func (ToolKeys) Type() Type           { return TypeToolKeys }
func (DaemonStarted) Type() Type      { return TypeDaemonStarted }
func (DaemonStopped) Type() Type      { return TypeDaemonStopped }
func (Anchored) Type() Type           { return TypeAnchor }
func (Gap) Type() Type                { return TypeGap }
func (checkpoint) Type() Type         { return TypeCheckpoint }

func (v RunStarted) encode(e *encoder) {
	e.str("tool", v.Tool)
	e.str("digest", v.Digest)
	e.list("argv", v.Argv)
	e.str("cwd", v.Cwd)
	e.str("workspace", v.Workspace)
	e.str("profile", v.Profile)
	e.str("plan", v.Plan)
	e.list("env", v.Env)
	e.list("warnings", v.Warnings)
	e.flag("learn", v.Learn)
	e.str("start", v.Start)
}

func (v Exec) encode(e *encoder) {
	e.str("program", v.Program)
	e.str("digest", v.Digest)
	e.list("argv", v.Argv)
	e.str("cwd", v.Cwd)
	e.opt("pid", int64(v.PID))
	e.opt("parent", int64(v.Parent))
	if v.Count > 1 {
		e.num("count", v.Count)
	}
}

func (v File) encode(e *encoder) {
	e.str("kind", v.Kind)
	e.str("path", v.Path)
	e.str("program", v.Program)
	e.opt("pid", int64(v.PID))
	e.num("count", v.Count)
	e.when("first", v.First)
	e.when("last", v.Last)
}

func (v Denied) encode(e *encoder) {
	e.str("layer", v.Layer)
	e.str("what", v.What)
	e.str("rule", v.Rule)
	if v.Count > 1 {
		e.num("count", v.Count)
		e.when("first", v.First)
		e.when("last", v.Last)
	}
}

func (v Limit) encode(e *encoder) {
	e.str("name", v.Name)
	e.num("limit", v.Limit)
	e.num("peak", v.Peak)
	e.str("action", v.Action)
}

func (v RunFinished) encode(e *encoder) {
	e.num("exit_code", int64(v.ExitCode))
	e.str("signal", v.Signal)
	e.str("limit", v.Limit)
	e.str("error", v.Error)
	e.flag("truncated", v.Truncated)
	e.str("workspace", v.Workspace)
	e.object("usage", func() {
		u := v.Usage
		e.num("wall_ms", u.WallMS)
		e.num("cpu_ms", u.CPUMS)
		e.num("memory_peak", u.MemoryPeak)
		e.num("pids_peak", u.PIDsPeak)
		e.num("throttled_ms", u.ThrottledMS)
		e.num("io_read", u.IORead)
		e.num("io_write", u.IOWrite)
		e.num("workspace_bytes", u.WorkspaceBytes)
		e.num("fetch_bytes_in", u.FetchBytesIn)
		e.num("fetch_bytes_out", u.FetchBytesOut)
		e.num("fetch_requests", u.FetchRequests)
		e.num("output_bytes", u.OutBytes)
	})
	e.changes(v.Changes)
}

func (v WorkspaceChanged) encode(e *encoder) {
	e.workspace(v.Workspace, v.Digest, v.Changes)
	e.list("files", v.Files)
}

func (v WorkspaceCommitted) encode(e *encoder) {
	e.workspace(v.Workspace, v.Digest, v.Changes)
	e.str("commit", v.Commit)
	e.list("paths", v.Paths)
	e.list("files", v.Files)
	e.list("held", v.Held)
	e.flag("protected", v.Protected)
	e.flag("begun", v.Begun)
	e.str("error", v.Error)
}

func (v WorkspaceDiscarded) encode(e *encoder) {
	e.workspace(v.Workspace, v.Digest, v.Changes)
	e.list("paths", v.Paths)
	e.str("gave_up", v.GaveUp)
}

func (v WorkspaceReverted) encode(e *encoder) {
	e.workspace(v.Workspace, v.Digest, v.Changes)
	e.str("commit", v.Commit)
	e.list("files", v.Files)
	e.flag("begun", v.Begun)
	e.str("error", v.Error)
}

func (v PolicyLoaded) encode(e *encoder) {
	e.str("kind", v.Kind)
	e.str("name", v.Name)
	e.str("path", v.Path)
	e.str("digest", v.Digest)
	e.str("was", v.Was)
	e.list("files", v.Files)
	e.str("error", v.Error)
}

func (v ToolInstalled) encode(e *encoder) {
	e.str("bundle", v.Bundle)
	e.str("version", v.Version)
	e.str("publisher", v.Publisher)
	e.str("digest", v.Digest)
	e.str("source", v.Source)
	e.str("error", v.Error)
}

func (v ToolRemoved) encode(e *encoder) {
	e.str("bundle", v.Bundle)
	e.str("version", v.Version)
	e.str("publisher", v.Publisher)
	e.str("digest", v.Digest)
	e.flag("forgotten", v.Forgotten)
}

func (v ToolKeys) encode(e *encoder) {
	e.str("publisher", v.Publisher)
	e.opt("version", v.Version)
	e.list("keys", v.Keys)
	e.flag("explicit", v.Explicit)
	e.flag("removed", v.Removed)
}

func (v DaemonStarted) encode(e *encoder) {
	e.str("version", v.Version)
	e.str("socket", v.Socket)
	e.str("state", v.State)
	e.flag("private", v.Private)
	e.list("missing", v.Missing)
}

func (v DaemonStopped) encode(e *encoder) { e.str("reason", v.Reason) }

func (v Anchored) encode(e *encoder) {
	e.str("name", v.Name)
	e.str("to", v.To)
	e.opt("size", int64(v.Size))
	e.str("error", v.Error)
	e.opt("failed", v.Failed)
}

func (v Gap) encode(e *encoder) {
	e.str("reason", v.Reason)
	e.opt("count", v.Count)
	e.opt("first", int64(v.First))
	e.opt("last", int64(v.Last))
	e.opt("bytes", v.Bytes)
	e.str("sha256", v.SHA256)
	e.str("file", v.File)
}

func (v checkpoint) encode(e *encoder) { e.str("note", v.note) }

func (e *encoder) workspace(dir, digest string, c Changes) {
	e.str("workspace", dir)
	e.str("digest", digest)
	e.changes(c)
}

func (e *encoder) changes(c Changes) {
	e.object("changes", func() {
		e.num("added", c.Added)
		e.num("modified", c.Modified)
		e.num("deleted", c.Deleted)
	})
}
