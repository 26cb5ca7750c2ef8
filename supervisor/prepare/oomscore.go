package prepare

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/problem"
)

// oomScore returns the oom_score_adj of a jail for which want is wanted. No jail has a lower one
// than the daemon itself, which without CAP_SYS_RESOURCE could not set it
// (proc_pid_oom_score_adj(5)). A user's service manager gives 200 to what it starts.
func oomScore(want int) (int, error) {
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

// fitOOMScore gives the plan an oom_score_adj that the daemon may set.
func (j *Job) fitOOMScore() error {
	score, err := oomScore(j.Plan.Cgroup.OOMScore)
	if err != nil {
		return problem.New(problem.Failed, "%w", err)
	}
	j.Plan.Cgroup.OOMScore = score
	return nil
}
