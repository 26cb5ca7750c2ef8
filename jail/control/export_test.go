package control

import (
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// SendRaw sends bytes that need be no message, with a descriptor.
func SendRaw(c *Conn, p []byte, f *os.File) error {
	_, err := sys.SendWithFiles(c.f, p, []*os.File{f})
	return err
}

type More = more
