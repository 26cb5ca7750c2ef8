// What runs the bench's modules under Wasmtime. A module of its own: the rest of jail needs none of it.
module github.com/jail-sandbox/jail/cmd/dev/bench/wasmtime

go 1.26.9

require github.com/bytecodealliance/wasmtime-go/v37 v37.0.0
