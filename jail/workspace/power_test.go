package workspace

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// T-324: TestPowerLoss records what a commit and a revert write to the disk and when its cache is
// flushed, and replays that up to every point: what was flushed is there, of what came after that
// any part. After a recovery the tree is old or new, and from the moment on at which a commit said
// that it was made it is there.
func TestPowerLoss(t *testing.T) {
	if !inPrivateMounts(t) {
		return
	}
	long := os.Getenv("JAIL_TEST_LONG") != ""
	eachFileSystem(t, func(t *testing.T, d *disk) {
		p := &powerBed{disk: d}
		p.record()
		step := 1
		if !long {
			step = max(1, (p.end-p.begin)/5)
		}
		for at := p.begin; at <= p.end; at += step {
			p.crash(at, 0)
			if long || at%3 == 0 {
				p.crash(at, 1)
			}
		}
		t.Logf("%d writes and flushes, %d crashes: %d old, %d new", p.end-p.begin, p.old+p.new,
			p.old, p.new)
		if p.old == 0 || p.new == 0 {
			t.Error("the test tests nothing")
		}
	})
}

type powerBed struct {
	*disk
	server *diskServer
	live   *virtualDisk
	// Of the log: where the commit begins, where it was over, where the revert was over.
	begin, made, undone int
	revert, end         int
	before, after       string
	durable             map[int64]*[pageSize]byte
	// Up to where that goes.
	flushed  int
	crashes  int
	old, new int
}

// record makes the file system on a disk that writes its log, commits and reverts.
func (p *powerBed) record() {
	t := p.t
	tmp := tempDir(t)
	disks := filepath.Join(tmp, "disks")
	p.dir = filepath.Join(tmp, "mnt")
	must(t, os.Mkdir(disks, 0o755))
	must(t, os.Mkdir(p.dir, 0o755))
	p.server = serveDisks(t, disks)
	p.live = &virtualDisk{size: p.size, pages: map[int64]*[pageSize]byte{}}
	image := p.server.add("live", p.live)
	p.command(append(p.mkfs, image)...)
	p.command("mount", "-o", "loop", image, p.dir)
	mounted := true
	defer func() {
		if mounted {
			p.command("umount", "-l", p.dir)
		}
	}()
	f := p.fixture()
	b := newFaultBed(f, faultScript)
	p.before, p.after = b.before, b.after
	w, err := f.store.Get("w")
	must(t, err)
	// As it will be after the loss of power.
	w.meta.DevBoot = "another boot"
	must(t, errors.Join(w.save(true), w.Close()))
	p.command("sync", "-f", p.dir)

	p.begin = p.server.logLength(p.live)
	b.plain("commit")
	p.made = p.server.logLength(p.live)
	p.command("sync", "-f", p.dir)
	p.revert = p.server.logLength(p.live)
	b.plain("revert")
	p.undone = p.server.logLength(p.live)
	p.end = p.undone
	must(t, f.store.Close())
	f.store, err = Open(tmp + "/elsewhere") // for the cleanup
	must(t, err)
	p.unmount()
	mounted = false
	p.durable = map[int64]*[pageSize]byte{}
}

// crash cuts the power off after that many writes. What was not flushed by then is there as well,
// or with a seed some of it.
func (p *powerBed) crash(at int, seed uint64) {
	t := p.t
	t.Helper()
	flush := p.flushed
	for i := p.flushed; i < at; i++ {
		if p.live.log[i].data == nil {
			flush = i + 1
		}
	}
	base := &virtualDisk{size: p.size, pages: p.durable}
	for ; p.flushed < flush; p.flushed++ {
		base.write(p.live.log[p.flushed].at, p.live.log[p.flushed].data)
	}
	torn := &virtualDisk{size: p.size, pages: maps.Clone(p.durable)}
	random := rand.New(rand.NewPCG(uint64(at), seed))
	for _, l := range p.live.log[flush:at] {
		if seed == 0 || random.IntN(2) == 0 {
			torn.write(l.at, l.data)
		}
	}
	p.crashes++
	image := p.server.add(fmt.Sprintf("crash-%d", p.crashes), torn)
	p.command("mount", "-o", "loop", image, p.dir)
	defer p.unmount()
	store, err := Open(filepath.Join(p.dir, "store"))
	must(t, err)
	defer store.Close()
	what := fmt.Sprintf(
		"%s, power lost at %d of %d (the commit was made at %d, the revert begins at %d and was "+
			"made at %d), seed %d", p.kind, at, p.end, p.made, p.revert, p.undone, seed)
	if _, err := store.Recover(t.Context()); err != nil {
		t.Fatalf("%s: recover: %v", what, err)
	}
	real := filepath.Join(p.dir, "real")
	now := snapshotText(real)
	switch {
	case now == p.before:
		p.old++
	case now == p.after:
		p.new++
	default:
		t.Fatalf("%s: the tree is mixed: %s", what, cmp.Diff(p.after, now))
	}
	if now != p.after && at >= p.made && at <= p.revert {
		t.Fatalf("%s: the commit is lost", what)
	}
	if now != p.before && at >= p.undone {
		t.Fatalf("%s: the revert is lost", what)
	}
	if strings.Contains(now, ".jail-") {
		t.Fatalf("%s: names of ours are left:\n%s", what, now)
	}
	b := &faultBed{f: &fixture{t: t, store: store, real: real}}
	b.stateAgrees(what, now == p.after)
}
