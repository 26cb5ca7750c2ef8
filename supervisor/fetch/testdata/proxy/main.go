// Command proxy is the fetch proxy as jaild is, built without C: the C library's threads need system calls that the proxy's filter refuses.
package main

import (
	"os"

	"github.com/jail-sandbox/jail/supervisor/fetch"
)

func main() { os.Exit(fetch.Main(os.Stderr)) }
