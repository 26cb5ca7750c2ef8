package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

const (
	minBytes = 1 << 20
	// The overlay makes a directory when it is mounted, which the limit does not allow for.
	minInodes = 2
	blockSize = 4096
	inodeSize = 256
	// inodesOfOurs are inodes for ext4 itself, the overlay, its two directories, and furnish.
	inodesOfOurs = 16
)

// imageSize returns the size in bytes of an image whose ext4 file system has room for bytes and
// inodes. It is a little larger than needed; furnish uses up the rest.
func imageSize(bytes, inodes int64) int64 {
	const (
		// The blocks that one bitmap describes.
		groupBlocks = 8 * blockSize
		// For each group: two bitmaps, inode tables rounded up, its share of the group descriptors
		// and of their copies.
		perGroup = 16
		// The superblock, the directories of ext4 and of the overlay, and the names in the
		// directory pad.
		fixed = 128
		// ext4 reserves a fiftieth of all blocks, and 4096 blocks at most (s_resv_clusters).
		reservedShare, reservedMost = 50, 4096
	)
	blocks := bytes/blockSize + (inodes+inodesOfOurs)*inodeSize/blockSize + fixed
	blocks += (blocks/groupBlocks + 1) * perGroup
	blocks += min(blocks/(reservedShare-1)+1, reservedMost)
	return blocks * blockSize
}

// newImage makes and locks upper.img in dir, an empty ext4 file system with room for bytes and
// inodes. It copies a template, which is faster than mkfs.
func (s *Store) newImage(dir *os.File, bytes, inodes int64) (*os.File, error) {
	image, err := newFile(dir, "upper.img")
	if err != nil {
		return nil, err
	}
	if err = s.format(image, bytes, inodes); err == nil {
		err = sys.Lock(image, true)
	}
	if err != nil {
		image.Close()
		return nil, err
	}
	return image, nil
}

// newFile makes a file and opens it for reading and writing. It fails if the file exists.
func newFile(dir *os.File, name string) (*os.File, error) {
	return sys.OpenBeneath(dir, name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// format replaces the content of image by an empty file system with these limits.
func (s *Store) format(image *os.File, bytes, inodes int64) error {
	template, err := s.template(bytes, inodes)
	if err != nil {
		return err
	}
	defer template.Close()
	return copyTemplate(image, template, imageSize(bytes, inodes))
}

// copyTemplate replaces the content of image by a template of size bytes.
func copyTemplate(image, template *os.File, size int64) error {
	if err := image.Truncate(0); err != nil {
		return err
	}
	return copyData(image, template, size)
}

// maxTemplates bounds the templates of a store, because each run chooses its own limits.
const maxTemplates = 64

// templatePrefix is the prefix of the names of templates. oldTemplatePrefix is that of releases up
// to 0.7, whose images are smaller.
const templatePrefix, oldTemplatePrefix = ".template-whole-", ".template-exact-"

func (s *Store) template(bytes, inodes int64) (*os.File, error) {
	name := fmt.Sprintf("%s%d-%d.img", templatePrefix, bytes, inodes)
	f, err := sys.OpenBeneath(s.dir, name, os.O_RDONLY, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	release, err := s.hold(false)
	if err != nil {
		return nil, err
	}
	defer release()
	// Made under another name, so that nobody uses an incomplete one. Two processes at once make
	// equal templates.
	fresh := fmt.Sprintf("%s.%d.%s", name, os.Getpid(), randomName())
	f, err = newFile(s.dir, fresh)
	if err != nil {
		return nil, err
	}
	size := imageSize(bytes, inodes)
	err = f.Truncate(size)
	if err == nil {
		err = mkfs(f, size, inodes)
	}
	if err == nil {
		err = furnish(f, bytes, inodes)
	}
	// The next runs rely on the content, also after a power loss.
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		// The templates that are still needed are made again.
		s.dropTemplates(maxTemplates)
		err = sys.MoveAt(s.dir, fresh, s.dir, name, true)
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(err, removeAt(s.dir, fresh))
	}
	return f, nil
}

// dropTemplates removes all templates if there are at least that many.
func (s *Store) dropTemplates(least int) {
	names, _ := s.names()
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, templatePrefix) || !strings.HasSuffix(name, ".img")
	})
	if len(names) < least {
		return
	}
	for _, name := range names {
		// A template that is not removed takes little space.
		_ = removeAt(s.dir, name)
	}
}

// features are explicit, so that the image does not depend on the host's mke2fs.conf. encrypt is
// set although nothing is encrypted: it disables large folios (Linux 6.16 and newer), with which a
// write may fail with ENOSPC while up to 1 MiB is free. So ENOSPC means that the limit is reached.
const features = "none,filetype,ext_attr,dir_index,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink," +
	"extra_isize,metadata_csum,encrypt"

// mkfsTime bounds the run of mkfs.ext4.
const mkfsTime = time.Minute

// mkfs makes an ext4 file system without features that a layer does not need: no journal, no room
// to grow, no blocks reserved for root, and no initialized inode tables.
func mkfs(image *os.File, size, inodes int64) error {
	program, err := findMkfs()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), mkfsTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-q", "-F", "-t", "ext4", "-b", "4096",
		"-I", strconv.Itoa(inodeSize), "-m", "0", "-N", strconv.FormatInt(inodes+inodesOfOurs, 10),
		"-O", features, "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0",
		"/proc/self/fd/3", strconv.FormatInt(size/4096, 10))
	cmd.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL=C", "MKE2FS_CONFIG=/dev/null"}
	cmd.ExtraFiles = []*os.File{image}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4 for %d bytes and %d files: %w: %s", size, inodes, err,
			bytes.TrimSpace(out))
	}
	return nil
}

func findMkfs() (string, error) {
	for _, p := range []string{"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4",
		"/bin/mkfs.ext4"} {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", errors.New("mkfs.ext4: not installed; it is part of e2fsprogs")
}

// copyData copies src, with its holes, to the empty file dst and sets its length to size. It makes
// a reflink if the file system can.
func copyData(dst, src *os.File, size int64) error {
	if err := dst.Truncate(size); err != nil {
		return err
	}
	if sys.CloneFile(dst, src) == nil {
		return nil
	}
	return eachData(src, func(start, end int64) error {
		_, err := io.Copy(io.NewOffsetWriter(dst, start),
			io.NewSectionReader(src, start, end-start))
		return err
	})
}

// eachData calls f for each range of file that is not a hole, in order.
func eachData(file *os.File, f func(start, end int64) error) error {
	for off := int64(0); ; {
		start, end, err := sys.NextData(file, off)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(start, end); err != nil {
			return err
		}
		off = end
	}
}

const (
	// ownInodes is the number of inodes that the overlay makes in the directory work.
	ownInodes = 3
	// ownBlocks is one block for each of ownInodes, and some for the extent trees of large files.
	// The tool can use the rest of them beyond its limit, so that a full layer means that the tool
	// exceeded the limit.
	ownBlocks = ownInodes + 8
)

// furnish makes the directories of a layer in an empty image, so that their blocks are on the disk
// before the layer is written. It also uses up the inodes and blocks beyond the limits, in a
// directory that no overlay shows: mkfs makes more inodes than requested, twice as many if they are
// few, and imageSize leaves more blocks than needed.
func furnish(image *os.File, bytes, inodes int64) (err error) {
	loop, err := sys.AttachLoop(image, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, loop.Close()) }()
	mount, err := sys.MountExt4(loop, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mount.Close()) }()
	for _, name := range []string{"upper", "work", "pad"} {
		if err := sys.MkdirAt(mount, name, 0o700); err != nil {
			return err
		}
	}
	dir, err := sys.OpenSubdir(mount, "pad")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := padBlocks(dir, bytes, inodes); err != nil {
		return err
	}
	return sys.Syncfs(dir)
}

func padBlocks(dir *os.File, bytes, inodes int64) error {
	blocks, err := newFile(dir, "blocks")
	if err != nil {
		return err
	}
	defer blocks.Close()
	if err := padInodes(dir, inodes); err != nil {
		return err
	}
	// The extent tree may take some of its blocks, so check the rest again.
	for size := int64(0); ; {
		free, err := sys.FreeBytes(dir)
		if err != nil {
			return err
		}
		more := free - bytes - ownBlocks*blockSize
		if more < 0 {
			return fmt.Errorf("the image has room for %d bytes, less than %d", free, bytes)
		}
		if more == 0 {
			return nil
		}
		size += more
		if err := sys.Fallocate(blocks, size); err != nil {
			return err
		}
	}
}

func padInodes(dir *os.File, inodes int64) error {
	_, free, err := sys.Room(dir)
	if err != nil {
		return err
	}
	for n := range free - inodes - ownInodes {
		f, err := newFile(dir, fmt.Sprintf("%x", n))
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// A blank is an empty upper layer that is made in advance for a later shadow: image, loop device
// and mounted file system, which take most of the time of Prepare. Nothing was written to it.
//
// <store>/.blank-<name>/upper.img is its image. The process that made it holds the lock of the
// directory. A blank reserves no disk space: the shadow that takes it does.
type blank struct {
	folder
	name string
	// bytes and inodes are the limits of the layer.
	bytes, inodes int64
	layer         layer
}

const blankPrefix = ".blank-"

const (
	// maxBlanks bounds the blanks of a store, because each run chooses its own limits.
	maxBlanks = 2
	// blankIdle is how long blanks are kept after the last Stock.
	blankIdle = 2 * time.Minute
)

// blanks are the blanks that one open store has made.
type blanks struct {
	mu     sync.Mutex
	ready  []*blank
	making bool
	idle   *time.Timer
	closed bool
}

// Stock makes an empty layer with the limits of w in advance, for the next shadow, unless there is
// one. It does nothing if the store is closed or layers are in memory. The layers are removed after
// two minutes without Stock, and when the store is closed.
func (s *Store) Stock(w *Workspace) error {
	w.mu.Lock()
	bytes, inodes := w.made.bytes, w.made.inodes
	w.mu.Unlock()
	if sys.Rootless() || bytes == 0 || !s.blanks.begin(bytes, inodes, func() {
		_ = s.dropBlanks(false)
	}) {
		return nil
	}
	b, err := s.newBlank(bytes, inodes)
	old := s.blanks.end(b)
	if old != nil {
		err = errors.Join(err, s.removeBlank(old))
	}
	return err
}

// begin reports whether the caller shall make a blank now and then call end. drop is called after
// blankIdle without begin.
func (b *blanks) begin(bytes, inodes int64, drop func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if b.idle == nil {
		b.idle = time.AfterFunc(blankIdle, drop)
	}
	b.idle.Reset(blankIdle)
	if b.making || slices.ContainsFunc(b.ready, func(b *blank) bool {
		return b.fits(bytes, inodes)
	}) {
		return false
	}
	b.making = true
	return true
}

// end adds the blank that was made, if not nil. It returns one that the caller must remove, or nil.
func (b *blanks) end(made *blank) (old *blank) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.making = false
	if made == nil || b.closed {
		return made
	}
	if b.ready = append(b.ready, made); len(b.ready) > maxBlanks {
		old = b.ready[0]
		b.ready = slices.Delete(b.ready, 0, 1)
	}
	return old
}

// take removes a blank with these limits from b and returns it, nil if there is none.
func (b *blanks) take(bytes, inodes int64) *blank {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.ready, func(b *blank) bool { return b.fits(bytes, inodes) })
	if i < 0 {
		return nil
	}
	taken := b.ready[i]
	b.ready = slices.Delete(b.ready, i, i+1)
	return taken
}

func (b *blank) fits(bytes, inodes int64) bool { return b.bytes == bytes && b.inodes == inodes }

func (s *Store) newBlank(bytes, inodes int64) (*blank, error) {
	b := &blank{name: blankPrefix + randomName(), bytes: bytes, inodes: inodes}
	var err error
	if b.dir, err = s.makeDir(b.name); err != nil {
		return nil, err
	}
	if b.layer.image, err = s.newImage(b.dir, bytes, inodes); err == nil {
		err = b.layer.mountImage()
	}
	if err != nil {
		return nil, errors.Join(err, s.removeBlank(b))
	}
	return b, nil
}

// removeBlank closes a blank and removes its directory.
func (s *Store) removeBlank(b *blank) error {
	return errors.Join(s.sweep(b.name), b.layer.close(), closeFiles(&b.dir))
}

// takeBlank makes a blank with these limits the layer of the workspace. It reports false if there
// is none or it cannot be taken. The caller holds the lock of the reservations.
func (p preparation) takeBlank(bytes, inodes int64) bool {
	s := p.w.store
	b := s.blanks.take(bytes, inodes)
	if b == nil {
		return false
	}
	if sys.MoveAt(b.dir, "upper.img", p.w.home.dir, "upper.img", false) != nil {
		// The rest of the blank is swept later.
		_ = s.removeBlank(b)
		return false
	}
	// The frozen layers of the workspace stay below the blank.
	b.layer.frozen = p.w.layer.frozen
	p.w.layer, b.layer = b.layer, layer{}
	_ = s.removeBlank(b)
	return true
}

// dropBlanks removes all blanks. With end, Stock makes no more.
func (s *Store) dropBlanks(end bool) (err error) {
	s.blanks.mu.Lock()
	all := s.blanks.ready
	s.blanks.ready, s.blanks.closed = nil, s.blanks.closed || end
	if end && s.blanks.idle != nil {
		s.blanks.idle.Stop()
	}
	s.blanks.mu.Unlock()
	for _, b := range all {
		err = errors.Join(err, s.removeBlank(b))
	}
	return err
}

// EndStock removes the layers that Stock made. Stock does nothing after it.
func (s *Store) EndStock() error { return s.dropBlanks(true) }
