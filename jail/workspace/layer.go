package workspace

import (
	"errors"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// layer is the upper layer of a workspace: the file system that a tool writes to. It is an ext4 in
// upper.img behind a loop device, or a tmpfs that upper.img receives when the workspace is kept.
// The zero layer is not open.
type layer struct {
	// image is upper.img. Its lock is exclusive while a jail may write, and shared afterwards.
	image *os.File
	loop  *os.File
	mount *os.File
	// root is the root of mount while a jail may write to it: syncfs reports the errors since it
	// was opened.
	root *os.File
	// lost is the error of the kernel that could not write all of the layer.
	lost error
	// damaged are the paths that did not reach the disk whole; see lookForDamage.
	damaged map[string]bool
	// memory says that mount is a tmpfs, attached in this process's mount namespace; see newMemory.
	memory bool
	// frozen are the frozen layers below it, the newest first.
	frozen []*frozenLayer
}

// openOwn opens the root of what the tool wrote to this layer.
func (l *layer) openOwn() (*os.File, error) { return sys.OpenSubdir(l.mount, "upper") }

func (l *layer) close() error {
	err := errors.Join(l.detachMemory(), closeFiles(&l.root, &l.mount, &l.loop, &l.image))
	for _, f := range l.frozen {
		err = errors.Join(err, f.release())
	}
	l.frozen = nil
	return err
}

// closeFiles closes the files that are open and forgets them.
func closeFiles(files ...**os.File) error {
	var err error
	for _, f := range files {
		if *f != nil {
			err = errors.Join(err, (*f).Close())
			*f = nil
		}
	}
	return err
}
