// Package workspace keeps shadows of real directories: a tool writes to an upper layer of its own,
// and only a requested commit changes the real directory. It exists so that no tool ever holds a
// descriptor through which the real directory can be written.
//
// The upper layer is an ext4 image with the size and the number of inodes of the policy, so that
// both limits hold while the tool writes. It is mounted detached: no mount table of the host shows
// it, and it ends with the last process that uses it.
//
// Two rules hold everywhere here. The upper layer is hostile: it is walked by descriptor, no link
// in it is followed, and only regular files are opened. The real directory is treated as changing:
// nothing is assumed between two looks at it.
package workspace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// State is a state in the life of a workspace; see Workspace.
type State string

// The states of a workspace in its store. A discarded workspace is gone from the store.
const (
	// The upper layer is empty.
	Prepared State = "prepared"
	// A jail may be writing to it.
	Active State = "active"
	// Nothing writes to it any more; it can be reviewed and committed.
	Frozen State = "frozen"
	// A commit is in progress, or was interrupted and waits for Recover.
	Committing State = "committing"
	// Nothing is left to commit; the upper layer is gone.
	Committed State = "committed"
	// ChangedBack is the state of a workspace that was committed as a whole and then reverted: only
	// its record is left.
	ChangedBack State = "reverted"
)

// recordOnly reports whether the upper layer is gone, so that there is nothing to review or commit.
func (s State) recordOnly() bool { return s == Committed || s == ChangedBack }

// Errors to compare with. Errors with data have types of their own: ConflictError, protectedError,
// commitError.
var (
	ErrNotFound   = errors.New("no such workspace")
	errExists     = errors.New("the workspace exists already")
	ErrActive     = errors.New("a jail is still using the workspace")
	ErrBusy       = errors.New("another commit or discard is under way")
	ErrState      = errors.New("the workspace is in no state for that")
	ErrLimits     = errors.New("no shadow can have these limits")
	ErrNoSpace    = errors.New("not enough room on the disk")
	ErrConflict   = errors.New("the real directory has changed since the run began")
	ErrProtected  = errors.New("protected names need an explicit yes")
	ErrNever      = errors.New("nothing of this is ever committed")
	ErrDigest     = errors.New("the changes are not the ones that were reviewed")
	ErrSource     = errors.New("the directory cannot have a shadow")
	errLost       = errors.New("the host went down while the workspace was being written")
	ErrNoChange   = errors.New("no change has that path")
	ErrPattern    = errors.New("pattern")
	errTooDeep    = errors.New("directories are nested too deep to review")
	ErrIncomplete = errors.New("an interrupted commit could not be undone whole")
	ErrRecord     = errors.New("what jail itself keeps of it is damaged")
	ErrManyDirs   = errors.New("too many directories for one commit")
	// ErrShape is the error of Resume for a layer that was made for other limits.
	ErrShape = errors.New("the shadow was made for other limits or other hidden names")
)

// Caller is the user with whose file rights a workspace is reviewed and committed.
type Caller struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

func (c Caller) do(f func() error) error { return sys.AsUser(c.UID, c.GID, c.Groups, f) }

// doAs calls f with the file rights of c and returns its results.
func doAs[T any](c Caller, f func() (T, error)) (out T, err error) {
	err = c.do(func() error {
		out, err = f()
		return err
	})
	return out, err
}

// readable reports whether the owner and mode in st let c read the content of the file.
func (c Caller) readable(st sys.Stat) bool {
	return c.UID == 0 || c.UID == st.UID || st.Mode&0o004 != 0 ||
		st.Mode&0o040 != 0 && (c.GID == st.GID || slices.Contains(c.Groups, st.GID))
}

// Workspace is one shadow of one directory. Its life:
//
//	Prepare ─► prepared ─Lower, Upper─► active ─Freeze─► frozen ─Commit─► committed ─Revert─► reverted
//	                                                      │  ▲ │
//	                                                      │  └─┘ Commit or DiscardPaths of a part,
//	                                                      │      Revert of that
//	Discard, at any time when no jail uses it: gone ◄─────┴──────────────────┴─────────────────┘
//	Fork, of a frozen one: its layer is frozen for good, and becomes the lower one of a branch
//	Resume, of a resumable frozen one, or of one whose layer is gone: prepared
//
//	prepared    an empty upper layer; the time to make it does not depend on the directory,
//	            except for names to hide
//	active      a jail may be writing to it
//	active      may also be shown, committed and reverted, by the process that runs the jail, while
//	            the jail's processes are stopped; see CommitOptions.Live
//	frozen      the jail's processes are gone and the layer's file system is read-only for
//	            everyone: Review, Show and Peek read it, and each showing ends with the digest
//	            of what it showed. Commit names that digest, and is refused if it has changed
//	committing  a commit or revert is in progress, or was interrupted; Recover finishes or
//	            undoes it, and the state is that of before or after
//	committed   nothing is left to commit, and the layer is gone; what was replaced is kept for
//	            Revert, for the time and up to the size of a Retention
//	reverted    the commit was undone; only the record is left, until Prune
//
// A review changes nothing, so being reviewed is no state: the digest shows that a change set was
// reviewed.
//
// Prepare, Lower, Upper and Freeze belong to the process that runs the jail. A frozen workspace
// outlives it: any later process gets it with Store.Get. If the process dies before Freeze, the
// workspace counts as frozen as soon as the last mount of the upper layer is gone; the image's
// lock, which the kernel keeps as long as its loop device, says when.
//
// Several workspaces may shadow one directory at once. Each has its own upper layer, and a commit
// of one is a conflict for the others that changed the same paths. The methods are safe for
// concurrent use.
type Workspace struct {
	store *Store
	home  folder

	mu    sync.Mutex
	meta  meta
	layer layer
	// made are the limits for which Prepare made the layer.
	made struct{ bytes, inodes int64 }
	// dropping are the paths that a DiscardPaths in progress discards.
	dropping []takenPath
	// basis has the changes of the last review whose base content a merge may need.
	basis    basis
	bases    bases
	reviewed []Change
	// source is the real directory, open with O_PATH.
	source *os.File
	// warnings are the result of Warnings.
	warnings []string
}

// Warnings returns messages for the user about what Prepare could not do.
func (w *Workspace) Warnings() []string { return w.warnings }

// meta is the store's record of a workspace, as JSON.
type meta struct {
	// Format is 1 for a workspace with frozen layers, else 0, as in all releases before 0.8.
	Format int    `json:"format,omitempty"`
	ID     string `json:"id"`
	State  State  `json:"state"`
	// Path of the real directory, as the kernel knew it.
	Path string `json:"path"`
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
	// DevBoot is the boot in which the directory's file system had that device number, Born the
	// creation time of the directory.
	DevBoot string   `json:"dev_boot,omitempty"`
	Born    sys.Time `json:"born,omitzero"`
	// Mode is the permission bits of the real directory at Prepare.
	Mode   uint32 `json:"mode"`
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	Caller Caller `json:"caller"`
	Bytes  int64  `json:"bytes"`
	Inodes int64  `json:"inodes"`
	// Since: a real path with this ctime or a later one has changed.
	Since sys.Time `json:"since"`
	Boot  string   `json:"boot"`
	Hide  []string `json:"hide,omitempty"`
	// Indexes maps each git index of which the hiding layer has an edited copy to the directory
	// whose files it names.
	Indexes map[Name]Name `json:"indexes,omitempty"`
	// From is the state before the commit or revert in progress; "" means frozen.
	From     State  `json:"from,omitempty"`
	Prepared string `json:"prepared"`
	// Dropped are the discarded paths, each with everything beneath it.
	Dropped []Name `json:"dropped,omitempty"`
	// Damaged are the damaged paths of the layer, unless a full disk did not take the record.
	Damaged []Name `json:"damaged,omitempty"`
	// Stuck says why an interrupted commit can be neither finished nor undone now.
	Stuck string `json:"stuck,omitempty"`
	// Touched maps inode numbers to the ctimes that our own commits left on existing inodes.
	Touched map[uint64]sys.Time `json:"touched,omitempty"`
	Commits []CommitRecord      `json:"commits,omitempty"`
	// Untold is set from the end of a commit or revert until Told.
	Untold *untold `json:"untold,omitempty"`
	// Resumable: Resume may open the frozen layer for writing again. So a commit of a part of it
	// is recorded in taken.json, like a commit of a live workspace.
	Resumable bool `json:"resumable,omitempty"`
	// Layers are the frozen layers below upper.img, the newest first; see frozenLayer.
	Layers []string `json:"layers,omitempty"`
	// Bare: the workspace has frozen layers only, and upper.img is not used. Resume makes an empty
	// layer above them.
	Bare bool `json:"bare,omitempty"`
	// Fork says where a branch comes from; nil for a workspace that is no branch.
	Fork *fork `json:"fork,omitempty"`
	// Merged are the ids of the merges into this workspace whose result is in Layers.
	Merged []string `json:"merged,omitempty"`
	// Forked: the workspace has or had branches.
	Forked bool `json:"forked,omitempty"`
	// Merges are the merges of this branch into its parent.
	Merges []MergeRecord `json:"merges,omitempty"`
}

// untold is a completed commit or revert whose end may not be in the audit log yet.
type untold struct {
	Commit string `json:"commit"`
	Digest string `json:"digest"`
	Revert bool   `json:"revert,omitempty"`
	// Paths are the reverted paths, if only a part of the commit is reverted.
	Paths []Name `json:"paths,omitempty"`
}

// Info describes a workspace without opening it.
type Info struct {
	ID    string `json:"id"`
	State State  `json:"state"`
	// Path of the real directory.
	Path     Name           `json:"path"`
	Caller   Caller         `json:"caller"`
	Bytes    int64          `json:"bytes"`  // limit
	Inodes   int64          `json:"inodes"` // limit
	Prepared time.Time      `json:"prepared"`
	Commits  []CommitRecord `json:"commits,omitempty"`
	// Stuck says why an interrupted commit can be neither finished nor undone now, for example
	// because a directory cannot be found.
	Stuck string `json:"stuck,omitempty"`
	// Resumable is as in Spec.
	Resumable bool `json:"-"`
	// Parent is the workspace that a branch was forked from. Depth is 1 for a fork of a workspace
	// that is no branch, 2 for a fork of that, and so on.
	Parent string `json:"parent,omitempty"`
	Depth  int    `json:"depth,omitempty"`
	// Merges of a branch, the oldest first.
	Merges []MergeRecord `json:"merges,omitempty"`

	untold bool
}

// CommitRecord describes one commit.
type CommitRecord struct {
	ID     string    `json:"id"`
	Time   time.Time `json:"time"`
	Caller Caller    `json:"caller"`
	// Digest of the change set of which the commit took all or a part.
	Digest string `json:"digest"`
	// Paths counts the changed paths.
	Paths int `json:"paths"`
	// Until is the time until which the replaced content is kept.
	Until time.Time `json:"until,omitzero"`
	// Bytes of replaced content that are kept.
	Bytes int64 `json:"bytes,omitempty"`
	// NotKept says why the replaced content is not kept.
	NotKept string `json:"not_kept,omitempty"`
	// Back counts the reverted paths of the commit while the others stay committed.
	Back int `json:"back,omitempty"`
	// Reverted is the time of the revert.
	Reverted time.Time `json:"reverted,omitzero"`
}

// Info describes the workspace as it is now.
func (w *Workspace) Info() Info {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.meta.info()
}

func (m meta) info() Info {
	// Only for display.
	prepared, _ := time.Parse(time.RFC3339Nano, m.Prepared)
	info := Info{ID: m.ID, State: m.State, Path: Name(m.Path), Caller: m.Caller,
		Bytes: m.Bytes, Inodes: m.Inodes, Prepared: prepared, Commits: m.Commits,
		Stuck: m.Stuck, Resumable: m.Resumable, Merges: m.Merges, untold: m.Untold != nil}
	if m.Fork != nil {
		info.Parent, info.Depth = m.Fork.Parent, m.Fork.Depth
	}
	return info
}

// Close closes the workspace's files. Jails that still use the layer keep it until they end.
func (w *Workspace) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.layer.close(), closeFiles(&w.source, &w.home.dir))
}

// locking calls f with w's mutex held and returns its results. doing names the action in an error.
func locking[T any](w *Workspace, doing string, f func() (T, error)) (T, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, err := f()
	return out, w.wrap(doing, err)
}

func (w *Workspace) wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("workspace %s: %s: %w", w.meta.ID, doing, err)
}
