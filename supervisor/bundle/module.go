package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
)

var (
	// ErrAltered is wrapped by errors about files that differ from the manifest.
	ErrAltered = errors.New("not what the manifest names")
	// errUntrusted is wrapped by errors about files that others than root could change.
	errUntrusted = errors.New("open to change by others than root")
)

// coreModule is the header of a WebAssembly core module of version 1. A component has another
// version there.
const coreModule = "\x00asm\x01\x00\x00\x00"

// A Module is a module of an installed bundle.
type Module struct {
	ModuleEntry

	bundle *Bundle
}

// Path returns the path of the module's file, which is not verified: use Read to run it.
func (m Module) Path() string { return filepath.Join(m.bundle.Dir, m.File) }

// Read returns the bytes of the module. Their size, SHA-256 and kind were checked against the
// manifest. Errors wrap ErrAltered or errUntrusted, or come from reading.
func (m Module) Read() ([]byte, error) {
	code, err := m.bundle.read(m.File, m.Size)
	if err != nil {
		return nil, err
	}
	if int64(len(code)) != m.Size {
		return nil, fmt.Errorf("%s: %w: %d bytes instead of %d", m.Path(), ErrAltered, len(code),
			m.Size)
	}
	if sum := sha256.Sum256(code); hex.EncodeToString(sum[:]) != m.SHA256 {
		return nil, fmt.Errorf("%s: %w: its sha256 is %x instead of %s", m.Path(), ErrAltered, sum,
			m.SHA256)
	}
	if len(code) < len(coreModule) || string(code[:len(coreModule)]) != coreModule {
		return nil, fmt.Errorf("%s: %w: no WebAssembly core module", m.Path(), ErrAltered)
	}
	return code, nil
}

// Verify reads and checks all modules, and the licences that the manifest pins. It returns all
// errors joined.
func (b *Bundle) Verify() error { return b.each(nil) }

// each verifies all files, and calls check for each module. check may be nil.
func (b *Bundle) each(check func(ModuleEntry, []byte) error) error {
	var all []error
	for _, entry := range b.Modules {
		code, err := Module{entry, b}.Read()
		if err == nil && check != nil {
			err = check(entry, code)
		}
		all = append(all, err)
	}
	for _, l := range b.Licences {
		if l.SHA256 == "" {
			continue
		}
		text, err := b.read(l.File, l.Size)
		if sum := sha256.Sum256(text); err == nil && (int64(len(text)) != l.Size ||
			hex.EncodeToString(sum[:]) != l.SHA256) {
			err = fmt.Errorf("%s: %w: its sha256 is %x instead of %s", filepath.Join(b.Dir, l.File),
				ErrAltered, sum, l.SHA256)
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}
