// Package workspace keeps shadows of real directories: a tool writes into an upper layer of its own, and what it wrote
// reaches the real directory only by a commit that was asked for. It exists so that no tool ever holds a descriptor
// through which the real directory can be written.
//
// The upper layer is an ext4 image, as large and with as many inodes as the policy says, so that both limits bite while the
// tool writes. It is mounted detached: no mount table of the host shows it, and it goes with the last process that uses it.
//
// Two rules stand over everything here. The upper layer is hostile: it is walked by descriptor, nothing in it is followed, and only
// regular files are opened. The real directory is treated as changing: nothing is taken for granted between two looks at it.
package workspace

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A State is where a workspace is in its life; see Workspace.
type State string

// The states in which a workspace is found in its store. A discarded one is found no more.
const (
	Prepared   State = "prepared"   // there is an empty upper layer
	Active     State = "active"     // a jail may be writing to it
	Frozen     State = "frozen"     // nothing writes to it any more; it can be reviewed and committed
	Committing State = "committing" // a commit is under way, or was cut off and waits for Recover
	Committed  State = "committed"  // nothing is left to commit; the upper layer is gone
	// ChangedBack is what a workspace is that was committed whole and then reverted: nothing is left of it but its record.
	ChangedBack State = "reverted"
)

// Errors to compare with. Those that carry data have a type of their own: ConflictError, ProtectedError, CommitError.
var (
	ErrNotFound   = errors.New("no such workspace")
	ErrExists     = errors.New("the workspace exists already")
	ErrActive     = errors.New("a jail is still using the workspace")
	ErrBusy       = errors.New("another commit or discard is under way")
	ErrState      = errors.New("the workspace is in no state for that")
	ErrLimits     = errors.New("no shadow can have these limits")
	ErrNoSpace    = errors.New("not enough room on the disk")
	ErrConflict   = errors.New("the real directory has changed since the run began")
	ErrProtected  = errors.New("protected names need an explicit yes")
	ErrDigest     = errors.New("the changes are not the ones that were reviewed")
	ErrSource     = errors.New("the directory cannot have a shadow")
	ErrLost       = errors.New("the host went down while the workspace was being written")
	ErrNoChange   = errors.New("no change has that path")
	ErrTooDeep    = errors.New("directories are nested too deep to review")
	ErrIncomplete = errors.New("an interrupted commit could not be undone whole")
)

// A Caller is whose file rights a workspace is reviewed and committed with.
type Caller struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

func (c Caller) do(f func() error) error { return sys.AsUser(c.UID, c.GID, c.Groups, f) }

// readable reports whether c could read the content of a file of that owner and mode.
func (c Caller) readable(st sys.Stat) bool {
	if c.UID == 0 || c.UID == st.UID || st.Mode&0o004 != 0 {
		return true
	}
	for _, g := range append([]uint32{c.GID}, c.Groups...) {
		if g == st.GID && st.Mode&0o040 != 0 {
			return true
		}
	}
	return false
}

// A Workspace is one shadow of one directory. Its life:
//
//	Prepare ─► prepared ─Lower, Upper─► active ─Freeze─► frozen ─Commit─► committed ─Revert─► reverted
//	                                                      │  ▲ │
//	                                                      │  └─┘ Commit of a part, Revert of that
//	Discard, at any time when no jail uses it: gone ◄─────┴──────────────────┴─────────────────┘
//
//	prepared    an empty upper layer; made in the same time however large the directory is, but for names to hide
//	active      a jail may be writing to it
//	frozen      the jail's processes are gone and the layer's file system is read-only for everyone: Review, Show and Peek read it, as often as they like,
//	            and each showing ends with the digest of what it showed. Commit names that digest, and is refused if there is anything else by then
//	committing  a commit or revert is under way, or was cut off; Recover finishes or undoes it, and the state is that of before or after, nothing else
//	committed   nothing is left to commit, and the layer is gone; what was replaced is kept for Revert, for the time and up to the size of a Retention
//	reverted    the commit was undone; only the record is left, until Prune
//
// A review changes nothing, so being reviewed is no state: the digest is what says that it was.
//
// Prepare, Lower, Upper and Freeze belong to the process that runs the jail. A frozen workspace outlives it: any later process gets it
// with Store.Get. If the process dies before Freeze, the workspace counts as frozen as soon as the last mount of the upper layer is gone;
// the image's lock, which the kernel keeps as long as its loop device, says when.
//
// Several workspaces may shadow one directory at once; each has its own upper layer, and a commit of one is a conflict for the others
// where they changed the same paths. The methods may be called from several goroutines.
type Workspace struct {
	store *Store
	dir   *os.File // <store>/<id>

	mu    sync.Mutex
	meta  meta
	image *os.File // its lock: exclusive while active, shared afterwards
	loop  *os.File
	mount *os.File // of the upper layer's file system
	// memory says that mount is a tmpfs, attached in this process's mount namespace; see newMemory.
	memory bool
	// basis are the changes of the last review whose base a merge could need; see saveBases.
	basis      []Change
	basisBytes int64
	reviewed   []Change
	// source is the real directory, open with O_PATH.
	source *os.File
}

// meta is what a store remembers of a workspace, as JSON.
type meta struct {
	ID    string `json:"id"`
	State State  `json:"state"`
	Path  string `json:"path"` // of the real directory, as the kernel knew it
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	// DevBoot is the boot in which the directory's file system had that device number, Born when the directory was made.
	DevBoot  string   `json:"dev_boot,omitempty"`
	Born     sys.Time `json:"born,omitzero"`
	Mode     uint32   `json:"mode"` // permission bits of the real directory at the time
	UID      uint32   `json:"uid"`
	GID      uint32   `json:"gid"`
	Caller   Caller   `json:"caller"`
	Bytes    int64    `json:"bytes"`
	Inodes   int64    `json:"inodes"`
	Since    sys.Time `json:"since"` // a real path with this ctime or a later one has changed
	Boot     string   `json:"boot"`
	Hide     []string `json:"hide,omitempty"`
	From     State    `json:"from,omitempty"` // the state before a commit or revert that is under way; "" is frozen
	Prepared string   `json:"prepared"`
	// Touched are the ctimes that our own commits left on inodes that were there before, by inode number.
	Touched map[uint64]sys.Time `json:"touched,omitempty"`
	Commits []CommitRecord      `json:"commits,omitempty"`
}

// Info is what a store knows of a workspace without opening it.
type Info struct {
	ID       string         `json:"id"`
	State    State          `json:"state"`
	Path     Name           `json:"path"` // of the real directory
	Caller   Caller         `json:"caller"`
	Bytes    int64          `json:"bytes"`  // limit
	Inodes   int64          `json:"inodes"` // limit
	Prepared time.Time      `json:"prepared"`
	Commits  []CommitRecord `json:"commits,omitempty"`
}

// A CommitRecord remembers one commit.
type CommitRecord struct {
	ID     string    `json:"id"`
	Time   time.Time `json:"time"`
	Caller Caller    `json:"caller"`
	Digest string    `json:"digest"` // of the change set of which it took all or a part
	Paths  int       `json:"paths"`  // how many were changed
	// Until is how long what it replaced is kept, Bytes how much that is; NotKept says why it is not.
	Until    time.Time `json:"until,omitzero"`
	Bytes    int64     `json:"bytes,omitempty"`
	NotKept  string    `json:"not_kept,omitempty"`
	Reverted time.Time `json:"reverted,omitzero"` // when it was
}

// Info describes the workspace as it is now.
func (w *Workspace) Info() Info {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.meta.info()
}

func (m meta) info() Info {
	prepared, _ := time.Parse(time.RFC3339Nano, m.Prepared) // for show only
	return Info{ID: m.ID, State: m.State, Path: Name(m.Path), Caller: m.Caller, Bytes: m.Bytes, Inodes: m.Inodes,
		Prepared: prepared, Commits: m.Commits}
}

// Close lets go of the workspace. What jails still use stays theirs until they end.
func (w *Workspace) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.close()
}

func (w *Workspace) close() error {
	err := w.detachMemory()
	for _, f := range []**os.File{&w.mount, &w.loop, &w.image, &w.source, &w.dir} {
		if *f != nil {
			err = errors.Join(err, (*f).Close())
			*f = nil
		}
	}
	return err
}

func (w *Workspace) wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("workspace %s: %s: %w", w.meta.ID, doing, err)
}
