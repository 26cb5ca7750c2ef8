package supervisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// spared is the oom_score_adj that a jail gets where want is wanted: no jail is spared longer than the daemon itself, which without CAP_SYS_RESOURCE could
// give none a lower one than its own (proc_pid_oom_score_adj(5)). A user's service manager gives what it starts 200.
func spared(want int) (int, error) {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("oom_score_adj of this process: %w", err)
	}
	return max(want, own), nil
}

// spare fits the plan to that.
func (j *job) spare() error {
	score, err := spared(j.plan.Cgroup.OOMScore)
	if err != nil {
		return failed(err, "", "%v", err)
	}
	j.plan.Cgroup.OOMScore = score
	return nil
}
