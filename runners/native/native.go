// Package native is the host half of the runner of native programs, the programs of the host that
// the policy lets run in a jail: it finds out what kind of file a program is, and which interpreter
// or loader the kernel needs to start it. It is pure. The inside half, which starts the program as
// a child of process 1, is the package guest below it.
package native

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Bounds of what is read of a program to learn how it starts.
const (
	// Program headers; the kernel takes 64 KiB of them.
	maxHeaders = 128
	// Bytes of the interpreter's path, as the kernel takes them.
	maxInterp = 4096
	// maxLine bounds a first line with #! in bytes, as the kernel does.
	maxLine = 256
)

// MaxChain bounds the interpreters of scripts in a row, as the kernel does.
const MaxChain = 4

// Program says how a file starts.
type Program struct {
	// Interpreter is the absolute path of the file that the kernel starts in its place or beside
	// it: the program after #!, or the loader of a dynamically linked program; empty without one.
	Interpreter string
	Script      bool // it starts with #!
}

// ErrFormat is returned for a file that the kernel cannot execute. More specific errors wrap it.
var ErrFormat = errors.New(
	"it is neither an ELF program for this processor nor a script with #! at its start")

// formatError is an ErrFormat with a reason.
type formatError string

func (e formatError) Error() string        { return string(e) }
func (e formatError) Is(target error) bool { return target == ErrFormat }

// Read returns how a program starts. An error wraps ErrFormat if the kernel cannot execute the
// file. The file is untrusted: Read reads only the first headers and checks every number in them.
func Read(r io.ReaderAt) (Program, error) {
	head := make([]byte, maxLine)
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Program{}, err
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		return readScript(head)
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return readELF(r, head)
	}
	return Program{}, ErrFormat
}

// readScript parses the first line as the kernel does: the interpreter ends at the first blank, and
// the rest is one argument.
func readScript(head []byte) (Program, error) {
	line, _, whole := bytes.Cut(head[2:], []byte("\n"))
	fields := strings.FieldsFunc(string(line), func(c rune) bool { return c == ' ' || c == '\t' })
	switch {
	case len(fields) == 0:
		return Program{}, formatError("its first line, #!, names no interpreter")
	case !whole && len(head) == maxLine && len(fields) == 1:
		return Program{}, formatError(fmt.Sprintf("its first line is longer than %d bytes",
			maxLine))
	case strings.HasSuffix(fields[0], "\r"):
		return Program{},
			formatError("its first line ends with a carriage return, as files of Windows do")
	case strings.ContainsRune(fields[0], 0):
		return Program{}, formatError("its first line has a zero byte in it")
	case !path.IsAbs(fields[0]):
		return Program{}, formatError(fmt.Sprintf("its interpreter %.100q is not an absolute path",
			fields[0]))
	}
	return Program{Interpreter: path.Clean(fields[0]), Script: true}, nil
}

// Places in the header of a 64-bit ELF file and in its program headers (elf(5)).
const (
	elfClass, elfData, elfType, elfMachine = 4, 5, 16, 18
	elfPhoff, elfPhentsize, elfPhnum       = 32, 54, 56
	phSize, phOffset, phFilesz             = 56, 8, 32

	class64, dataLittle = 2, 1
	machineX86          = 62
	typeExec, typeDyn   = 2, 3
	headerInterp        = 3
)

func readELF(r io.ReaderAt, head []byte) (Program, error) {
	le := binary.LittleEndian
	switch {
	case len(head) < 64:
		return Program{}, formatError("its header is cut off")
	case head[elfClass] != class64 || head[elfData] != dataLittle ||
		le.Uint16(head[elfMachine:]) != machineX86:
		return Program{}, formatError("it was built for another processor")
	}
	if t := le.Uint16(head[elfType:]); t != typeExec && t != typeDyn {
		return Program{}, formatError("it is an ELF file, and not a program")
	}
	count, offset := le.Uint16(head[elfPhnum:]), le.Uint64(head[elfPhoff:])
	if le.Uint16(head[elfPhentsize:]) != phSize || count == 0 || count > maxHeaders ||
		offset > 1<<40 {
		return Program{}, formatError("its program headers make no sense")
	}
	headers := make([]byte, int(count)*phSize)
	if _, err := r.ReadAt(headers, int64(offset)); err != nil {
		return Program{}, formatError("its program headers are cut off")
	}
	for ; len(headers) > 0; headers = headers[phSize:] {
		if le.Uint32(headers) == headerInterp {
			return readInterp(r, le.Uint64(headers[phOffset:]), le.Uint64(headers[phFilesz:]))
		}
	}
	return Program{}, nil
}

func readInterp(r io.ReaderAt, offset, size uint64) (Program, error) {
	if size < 2 || size > maxInterp || offset > 1<<40 {
		return Program{}, formatError("the path of its loader makes no sense")
	}
	text := make([]byte, size)
	if _, err := r.ReadAt(text, int64(offset)); err != nil {
		return Program{}, formatError("the path of its loader is cut off")
	}
	name, _, ended := bytes.Cut(text, []byte{0})
	if !ended || !path.IsAbs(string(name)) {
		return Program{}, formatError("the path of its loader makes no sense")
	}
	return Program{Interpreter: path.Clean(string(name))}, nil
}
