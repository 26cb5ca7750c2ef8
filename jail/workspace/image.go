package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

const (
	minBytes     = 1 << 20
	inodeSize    = 256
	inodesOfOurs = 16 // those of ext4 itself, of the overlay, of its two directories, and of pad
)

// newImage makes upper.img, an empty ext4 file system of that size and number of inodes, as a copy of a template that is
// made once: mkfs takes milliseconds, the copy of the few blocks that it wrote a fraction of one.
func (s *Store) newImage(dir *os.File, size, inodes int64) (*os.File, error) {
	template, err := s.template(size, inodes)
	if err != nil {
		return nil, err
	}
	defer template.Close()
	image, err := sys.OpenBeneath(dir, "upper.img", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err = image.Truncate(size); err == nil {
		err = copyData(image, template)
	}
	if err != nil {
		image.Close()
		return nil, err
	}
	return image, nil
}

func (s *Store) template(size, inodes int64) (*os.File, error) {
	name := fmt.Sprintf(".template-exact-%d-%d.img", size, inodes)
	f, err := sys.OpenBeneath(s.dir, name, os.O_RDONLY, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	// Made below another name, so that nobody takes one that is not complete. Two at once make the same.
	fresh := fmt.Sprintf("%s.%d.%s", name, os.Getpid(), randomName())
	f, err = sys.OpenBeneath(s.dir, fresh, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = f.Truncate(size)
	if err == nil {
		err = mkfs(f, size, inodes)
	}
	if err == nil {
		err = pad(f, inodes)
	}
	if err == nil {
		err = sys.MoveAt(s.dir, fresh, s.dir, name, true)
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(err, removeAt(s.dir, fresh))
	}
	return f, nil
}

// features are named one by one, so that the image does not depend on the host's mke2fs.conf.
const features = "none,filetype,ext_attr,dir_index,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum"

// mkfs makes an ext4 without what a layer for one run does not need: no journal, no room to grow, no blocks kept for root, and
// inode tables that are read as zeros until they are written.
func mkfs(image *os.File, size, inodes int64) error {
	program, err := findMkfs()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "-q", "-F", "-t", "ext4", "-b", "4096", "-I", strconv.Itoa(inodeSize), "-m", "0",
		"-N", strconv.FormatInt(inodes+inodesOfOurs, 10), "-O", features,
		"-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", "/proc/self/fd/3", strconv.FormatInt(size/4096, 10))
	cmd.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL=C", "MKE2FS_CONFIG=/dev/null"}
	cmd.ExtraFiles = []*os.File{image}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4 for %d bytes and %d files: %w: %s", size, inodes, err, bytes.TrimSpace(out))
	}
	return nil
}

func findMkfs() (string, error) {
	for _, p := range []string{"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4", "/bin/mkfs.ext4"} {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", errors.New("mkfs.ext4: not installed; it is part of e2fsprogs")
}

// copyData makes dst, an empty file of src's size, equal to src, holes included: shared where the file system can, else copied.
func copyData(dst, src *os.File) error {
	if sys.CloneFile(dst, src) == nil {
		return nil
	}
	return eachData(src, func(start, end int64) error {
		_, err := io.Copy(io.NewOffsetWriter(dst, start), io.NewSectionReader(src, start, end-start))
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
