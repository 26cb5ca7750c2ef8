// Command example prints the status and the body of each URL, in the way of any Go program: only
// the import of jailhttp is for the jail.
//
//	GOOS=wasip1 GOARCH=wasm go build -o get.wasm .
//	jail run --profile fetch --fetch example.com -- ./get.wasm https://example.com/
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"

	_ "github.com/jail-sandbox/jail/runners/wasi/guestlib/jailhttp"
)

func main() {
	for _, u := range os.Args[1:] {
		if err := get(u); err != nil {
			fmt.Fprintln(os.Stderr, "example:", err)
			os.Exit(1)
		}
	}
}

func get(u string) error {
	resp, err := http.Get(u)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	fmt.Println(resp.StatusCode, string(body))
	return nil
}
