// Package keyfile reads private keys for signing.
package keyfile

import (
	"os"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
)

// Read returns the private key in file. If file is "", the error says that --key is missing.
func Read(file string) (string, error) {
	if file == "" {
		return "", exit.Usage("jail tool key new makes one", "--key FILE is missing")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", exit.About(err, "key %s", file)
	}
	return string(text), nil
}
