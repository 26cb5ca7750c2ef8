package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A frozen layer is what an upper layer became when its shadow was forked: nothing writes to it any
// more, and several shadows have it below the layer that they write to. The kernel forbids that an
// upper layer that is mounted be another overlay's lower one (Documentation/filesystems/
// overlayfs.rst, "Sharing and copying layers"), so a shadow that goes on gets a layer of its own.
//
// <store>/.layer-<id>/ has
//
//	upper.img   its ext4 image
//	layer.json  what it takes of the limits
//
// The metas of workspaces name their layers. One that no meta names is removed by dropLayers.
const (
	layerPrefix = ".layer-"
	layerRecord = "layer.json"
	// maxLayers bounds the frozen layers of a shadow: the deepest branch, and what merges put above.
	maxLayers = 40
	// foldAbove is the number of frozen layers above which those of one shadow alone are joined.
	foldAbove = 20
)

// layerMeta is layer.json.
type layerMeta struct {
	Bytes  int64 `json:"bytes"`
	Inodes int64 `json:"inodes"`
}

// A frozenLayer is a frozen layer that this process has mounted, read-only.
type frozenLayer struct {
	layerMeta
	set         *frozenSet
	id          string
	users       int
	image, loop *os.File
	mount       *os.File
}

// A layerStore is the frozen layers of a store.
type layerStore struct{ s *Store }

// frozenSet has the frozen layers that are mounted, each once for all shadows that use it. The zero
// set is empty.
type frozenSet struct {
	mu  sync.Mutex
	all map[string]*frozenLayer
}

// release ends one use.
func (f *frozenLayer) release() error {
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	if f.users--; f.users > 0 {
		return nil
	}
	delete(f.set.all, f.id)
	return closeFiles(&f.mount, &f.loop, &f.image)
}

// openFrozen mounts a frozen layer. The caller releases it.
func (l layerStore) openFrozen(id string) (*frozenLayer, error) {
	s := l.s
	set := &s.frozen
	set.mu.Lock()
	defer set.mu.Unlock()
	if f := set.all[id]; f != nil {
		f.users++
		return f, nil
	}
	f := &frozenLayer{set: set, id: id, users: 1}
	if err := f.open(s); err != nil {
		err = errors.Join(err, closeFiles(&f.mount, &f.loop, &f.image))
		return nil, fmt.Errorf("frozen layer %s: %w", id, err)
	}
	if set.all == nil {
		set.all = map[string]*frozenLayer{}
	}
	set.all[id] = f
	return f, nil
}

func (f *frozenLayer) open(s *Store) error {
	dir, err := sys.OpenSubdir(s.dir, layerPrefix+f.id)
	if err != nil {
		return err
	}
	defer dir.Close()
	m, err := readJSON[layerMeta](dir, layerRecord)
	if err != nil {
		return err
	}
	f.layerMeta = *m
	if f.image, err = sys.OpenBeneath(dir, "upper.img", os.O_RDONLY, 0); err != nil {
		return err
	}
	if f.loop, err = sys.AttachLoop(f.image, true); err != nil {
		return err
	}
	if f.mount, err = sys.MountExt4(f.loop, true); isNoFileSystem(err) {
		err = fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return err
}

// openLayers mounts the frozen layers of the workspace.
func (o opening) openLayers() error {
	l := &o.w.layer
	if len(l.frozen) > 0 {
		return nil
	}
	all, err := (layerStore{o.w.store}).openStack(o.w.meta.Layers)
	l.frozen = all
	return err
}

func (l layerStore) openStack(ids []string) (all []*frozenLayer, err error) {
	s := l.s
	for _, id := range ids {
		f, err := (layerStore{s}).openFrozen(id)
		if err != nil {
			return nil, errors.Join(err, releaseAll(all))
		}
		all = append(all, f)
	}
	return all, nil
}

func releaseAll(all []*frozenLayer) (err error) {
	for _, f := range all {
		err = errors.Join(err, f.release())
	}
	return err
}

// FrozenLayers returns detached read-only mounts of the frozen layers of the workspace, the newest first,
// for Attach. The caller closes them.
func FrozenLayers(w *Workspace) ([]*os.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, err := mountsOf(w.layer.frozen)
	return all, w.wrap("frozen layers", err)
}

func mountsOf(layers []*frozenLayer) (all []*os.File, err error) {
	for _, f := range layers {
		m, err := sys.MountExt4(f.loop, true)
		if err != nil {
			closeAll(all...)
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// room returns what the limits of the workspace leave for the layer that its tools write to, after
// what the frozen layers take. It is in steps of a 64th of the limit, so that few templates of
// images are needed.
func (f forking) room() (bytes, inodes int64, err error) {
	w := f.w
	bytes, inodes = w.meta.Bytes, w.meta.Inodes
	var usedBytes, usedInodes int64
	for _, f := range w.layer.frozen {
		usedBytes += f.Bytes
		usedInodes += f.Inodes
	}
	bytes = (bytes - inSteps(usedBytes, bytes)) &^ 4095
	inodes -= inSteps(usedInodes, inodes)
	if bytes < minBytes || inodes < minInodes {
		err = fmt.Errorf("%w: its frozen layers hold %s and %d files of the %s and %d that the shadow "+
			"may take: commit or discard a part, or start a session with larger limits", ErrLimits,
			size(usedBytes), usedInodes, size(w.meta.Bytes), w.meta.Inodes)
	}
	return bytes, inodes, err
}

func inSteps(used, limit int64) int64 {
	step := max(1, limit/64)
	return (used + step - 1) / step * step
}

// usage returns what a layer takes of the limits.
func usage(mount *os.File, bytes, inodes int64) (layerMeta, error) {
	freeBytes, freeInodes, err := sys.Room(mount)
	return layerMeta{max(0, bytes+ownBlocks*blockSize-freeBytes),
		max(0, inodes+ownInodes-freeInodes)}, err
}

// dropLayers removes the frozen layers that no workspace names. It removes none if a workspace
// cannot be read. The caller holds the store's lock exclusively.
func (l layerStore) dropLayers() error {
	s := l.s
	names, err := s.names()
	if err != nil {
		return err
	}
	var layers []string
	used := map[string]bool{}
	for _, name := range names {
		if id, ok := strings.CutPrefix(name, layerPrefix); ok {
			layers = append(layers, id)
			continue
		}
		if checkID(name) != nil {
			continue
		}
		dir, err := sys.OpenSubdir(s.dir, name)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return err
		}
		m, err := readJSON[meta](dir, "meta.json")
		dir.Close()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, id := range m.layersInUse() {
			used[id] = true
		}
	}
	for _, id := range layers {
		if !used[id] {
			err = errors.Join(err, s.sweep(layerPrefix+id))
		}
	}
	return err
}

// layersInUse returns the frozen layers that the workspace needs, for itself or to undo a merge.
func (m meta) layersInUse() []string {
	all := slices.Clone(m.Layers)
	for _, r := range m.Merges {
		if r.Reverted.IsZero() {
			all = append(all, r.Below...)
		}
	}
	return all
}

// sweepUnused removes the frozen layers that no workspace needs any more.
func (l layerStore) sweepUnused() error {
	s := l.s
	release, err := s.hold(true)
	if err != nil {
		return err
	}
	defer release()
	return (layerStore{s}).dropLayers()
}
