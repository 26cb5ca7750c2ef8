package learn

import (
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

// Peaks are the highest usage of the runs. Sizes are in bytes.
type Peaks struct {
	Wall, CPU      time.Duration
	Memory, PIDs   int64
	Output         int64
	Workspace      int64
	WorkspaceFiles int64
	FetchIn        int64
	FetchOut       int64
	FetchRequests  int64
}

// Max returns the larger value of each peak.
func (p Peaks) Max(q Peaks) Peaks {
	return Peaks{max(p.Wall, q.Wall), max(p.CPU, q.CPU), max(p.Memory, q.Memory),
		max(p.PIDs, q.PIDs), max(p.Output, q.Output), max(p.Workspace, q.Workspace),
		max(p.WorkspaceFiles, q.WorkspaceFiles), max(p.FetchIn, q.FetchIn), max(p.FetchOut,
			q.FetchOut), max(p.FetchRequests, q.FetchRequests)}
}

// A LimitLine is one limit with its evidence.
type LimitLine struct {
	Section string `json:"section"` // limits or fetch.limits
	Name    string `json:"name"`
	Value   int64  `json:"value"`
	Why     string `json:"why"`
}

func (l LimitLine) field() policy.Field { return policy.FieldOf(l.Section + "." + l.Name) }

const (
	mib = 1 << 20
	kib = 1 << 10
	// room is the factor from a peak to its limit, for other inputs, a cold cache and a busy
	// machine.
	room = 4
)

// roundUp rounds n up to a multiple.
func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }

// Bounds returns limits made from peaks: about four times the peak, or twice for memory, processes
// and requests, with minimums for other files of the same kind. fetches adds fetch limits. factor
// is 1, or more if a run reached a limit.
func Bounds(p Peaks, fetches bool, factor int64) []LimitLine {
	u := policy.Duration
	line := func(name string, value int64, why string) LimitLine {
		return LimitLine{"limits", name, value, why}
	}
	wall := max(5*time.Second, (room*p.Wall).Round(time.Second)) * time.Duration(factor)
	cpu := max(5*time.Second, (room*p.CPU).Round(time.Second)) * time.Duration(factor)
	cores := int64(1000)
	if p.Wall > 0 && p.CPU > p.Wall {
		cores = roundUp(int64(p.CPU)*1000/int64(p.Wall), 1000)
	}
	memory := roundUp(max(64*mib, 2*p.Memory), 16*mib) * factor
	space := roundUp(max(16*mib, room*p.Workspace), 16*mib) * factor
	lines := []LimitLine{
		line("wall", int64(wall), "took "+u.Format(int64(p.Wall.Round(time.Millisecond)))),
		line("cpu_time", int64(cpu), "took "+u.Format(int64(p.CPU.Round(time.Millisecond)))),
		line("cpus", cores, "CPU time over time"),
		line("memory", memory, "peak "+policy.Bytes.Format(roundUp(p.Memory, kib))),
		line("pids", max(16, 2*p.PIDs)*factor, fmt.Sprintf("peak %d", p.PIDs)),
		line("open_files", 1024, "not observed"),
		line("output", roundUp(max(mib, room*p.Output), mib)*factor,
			fmt.Sprintf("%d bytes", p.Output)),
		line("workspace", space,
			fmt.Sprintf("%s left in it; what was there in between is not observed",
				policy.Bytes.Format(roundUp(p.Workspace, kib)))),
		line("workspace_files", max(1000, room*p.WorkspaceFiles)*factor,
			fmt.Sprintf("%d left in it", p.WorkspaceFiles)),
		line("file_size", space, "as the workspace; not observed"),
	}
	if fetches {
		lines = append(lines,
			LimitLine{"fetch.limits", "requests", max(10, 2*p.FetchRequests) * factor,
				fmt.Sprintf("%d made", p.FetchRequests)},
			LimitLine{"fetch.limits", "bytes_in", roundUp(max(mib, room*p.FetchIn), mib) * factor,
				fmt.Sprintf("%d bytes", p.FetchIn)},
			LimitLine{"fetch.limits", "bytes_out", roundUp(max(64*kib, room*p.FetchOut),
				64*kib) * factor, fmt.Sprintf("%d bytes", p.FetchOut)},
			LimitLine{"fetch.limits", "concurrent", 4, "not observed"},
			LimitLine{"fetch.limits", "timeout", int64(30 * time.Second), "not observed"},
		)
	}
	return lines
}
