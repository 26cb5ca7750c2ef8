package prepare

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/supervisor/modules"
)

// maxEngineModules is how many modules the shared engine of a policy has mounted. With one more, a
// new engine begins with that one alone.
const maxEngineModules = 16

// Modules are the compiled modules that the shared engines of a session have mounted. Its methods
// may be called from several goroutines.
type Modules struct {
	mu sync.Mutex
	// hold keeps them in the cache until the session ends.
	hold modules.Hold
	// dirs are their directories by the digest of the policy.
	dirs map[string][]string
}

// find is modules.Cache.Find with the hold of the session.
func (m *Modules) find(c *modules.Cache, sum [sha256.Size]byte) (dir string, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.Find(&m.hold, sum)
}

// place returns the directories that an engine of that policy mounts so that it has dir, and the
// place of dir among them.
func (m *Modules) place(policy, dir string) ([]string, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dirs == nil {
		m.dirs = map[string][]string{}
	}
	all := m.dirs[policy]
	i := slices.Index(all, dir)
	if i < 0 {
		if len(all) >= maxEngineModules {
			all = nil
		}
		i, all = len(all), append(slices.Clip(all), dir)
		m.dirs[policy] = all
	}
	return all, i
}

// Close lets the modules go. m may be nil.
func (m *Modules) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold.Close()
}

// sharedMemory is the linear memory that one invocation in a shared engine may have, of the limit
// of all of them together. The rest is for the engine and for others, so that an invocation which
// asks for ever more is refused by itself before the kernel ends the process.
func sharedMemory(limit int64) int64 { return limit / 4 * 3 }

// mayShare reports whether an invocation can run in a shared engine of its session. What is seen of
// a process from outside, as its file events are, could not be told apart there.
func (j *Job) mayShare() bool {
	return j.In.Modules != nil && j.Tool.Native == "" && j.Tool.Script == nil &&
		j.Req.Terminal == nil && !j.Req.Learn &&
		j.Tool.memory <= sharedMemory(j.Policy.Policy().Limits.Memory) &&
		j.Policy.Policy().Audit.Files == policy.FilesNone &&
		j.Policy.Policy().Session.Engine != policy.EngineOwn
}

// code is the digest by which the cache knows the machine code of a module of the job.
func (j *Job) code(t Tool) [sha256.Size]byte {
	if j.Shared() {
		return wasi.Interruptible(t.Sum)
	}
	return t.Sum
}
