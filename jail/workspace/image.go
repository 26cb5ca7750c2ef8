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
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

const (
	minBytes = 1 << 20
	// The overlay makes a directory when it is mounted, which the limit does not allow for.
	minInodes = 2
	blockSize = 4096
	inodeSize = 256
	// Those of ext4 itself, of the overlay, of its two directories, and of furnish.
	inodesOfOurs = 16
)

// imageSize returns the size of an ext4 file system in which bytes and inodes can be used. It is a
// little larger than needed; furnish uses up the rest.
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

// newImage makes and locks upper.img, an empty ext4 file system with room for so many bytes and
// inodes. It copies a template that is made once: mkfs takes milliseconds, and the copy of its few
// blocks a fraction of one.
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

// newFile makes a file of a directory, which must not be there, for reading and writing.
func newFile(dir *os.File, name string) (*os.File, error) {
	return sys.OpenBeneath(dir, name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// format replaces the content of image by the empty file system.
func (s *Store) format(image *os.File, bytes, inodes int64) error {
	template, err := s.template(bytes, inodes)
	if err != nil {
		return err
	}
	defer template.Close()
	return copyTemplate(image, template, imageSize(bytes, inodes))
}

// copyTemplate replaces the content of image by that of a template of that size.
func copyTemplate(image, template *os.File, size int64) error {
	if err := image.Truncate(0); err != nil {
		return err
	}
	return copyData(image, template, size)
}

// maxTemplates bounds the templates of a store, because each run chooses its own limits.
const maxTemplates = 64

// templatePrefix begins the names of templates. oldTemplatePrefix begins those of releases up to
// 0.7, whose images are smaller.
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
	// Made under another name, so that nobody takes an incomplete one. Two processes at once make
	// the same.
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
		s.boundTemplates()
		err = sys.MoveAt(s.dir, fresh, s.dir, name, true)
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(err, removeAt(s.dir, fresh))
	}
	return f, nil
}

// boundTemplates removes all templates if there are as many as there may be. Those in use are made
// again.
func (s *Store) boundTemplates() {
	names, _ := s.names()
	n := 0
	for _, name := range names {
		if isTemplate(name) {
			n++
		}
	}
	if n >= maxTemplates {
		s.dropTemplates()
	}
}

func isTemplate(name string) bool {
	return strings.HasPrefix(name, templatePrefix) && strings.HasSuffix(name, ".img")
}

// dropTemplates frees room on a full disk: templates are made again when they are needed.
func (s *Store) dropTemplates() {
	names, _ := s.names()
	for _, name := range names {
		if isTemplate(name) {
			// A template that stays takes little room.
			_ = removeAt(s.dir, name)
		}
	}
}

// features are explicit, so that the image does not depend on the host's mke2fs.conf. encrypt is
// set although nothing is encrypted: such a file system has no large folios (Linux 6.16 and newer),
// so a write takes the room that is left instead of ending with ENOSPC up to a mebibyte before. A
// file system without room then means that the limit was met.
const features = "none,filetype,ext_attr,dir_index,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink," +
	"extra_isize,metadata_csum,encrypt"

// mkfsTime bounds mkfs.ext4, which writes next to nothing.
const mkfsTime = time.Minute

// mkfs makes an ext4 without the features that a layer for one run does not need: no journal, no
// room to grow, no blocks reserved for root, and inode tables that read as zeros until they are
// written.
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

// copyData copies src to dst, an empty file, which becomes size bytes long, with its holes: as a
// reflink if the file system can.
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
