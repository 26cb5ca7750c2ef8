// Command socket asks its host for a way to open a socket, as WasmEdge's extension of WASI has it.
package main

import "fmt"

//go:wasmimport wasi_snapshot_preview1 sock_open
func sockOpen(family, kind int32, fd *int32) int32

func main() {
	var fd int32
	fmt.Println(sockOpen(1, 2, &fd), fd)
}
