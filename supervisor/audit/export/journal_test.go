package export

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"syscall"
	"testing"
)

// journalFields reads the native protocol strictly.
func journalFields(t *testing.T, text []byte) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for len(text) > 0 {
		end := bytes.IndexAny(text, "=\n")
		if end < 1 {
			t.Fatalf("no field: %.100q", text)
		}
		name, value := string(text[:end]), []byte(nil)
		switch {
		case text[end] == '=':
			stop := bytes.IndexByte(text, '\n')
			value, text = text[end+1:stop], text[stop+1:]
		default:
			size := int(binary.LittleEndian.Uint64(text[end+1:]))
			value, text = text[end+9:end+9+size], text[end+9+size+1:]
		}
		for _, c := range name {
			if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
				t.Errorf("field %q", name)
			}
		}
		if _, twice := fields[name]; twice {
			t.Errorf("field %s is there twice", name)
		}
		fields[name] = string(value)
	}
	return fields
}

// readPassed reads the file that came with a message.
func readPassed(t *testing.T, oob []byte) []byte {
	t.Helper()
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		t.Errorf("%d control messages, %v", len(messages), err)
		return nil
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Errorf("%d files, %v", len(fds), err)
		return nil
	}
	f := os.NewFile(uintptr(fds[0]), "passed")
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Error(err)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		t.Error(err)
	}
	return text
}
