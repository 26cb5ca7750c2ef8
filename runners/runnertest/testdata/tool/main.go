// Command tool does one thing that its first argument names. Each runner is tested with it, built for what the runner runs.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	code, err := do(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tool:", err)
		code = 1
	}
	os.Exit(code)
}

func do(verb string, args []string) (int, error) {
	switch verb {
	case "args":
		fmt.Printf("%q\n", args)
	case "env":
		for _, e := range os.Environ() {
			fmt.Printf("%q\n", e)
		}
	case "cwd":
		dir, err := os.Getwd()
		fmt.Println(dir)
		return 0, err
	case "exit":
		return strconv.Atoi(args[0])
	case "both":
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
	case "cat":
		if len(args) == 0 {
			_, err := io.Copy(os.Stdout, os.Stdin)
			return 0, err
		}
		text, err := os.ReadFile(args[0])
		if err == nil {
			_, err = os.Stdout.Write(text)
		}
		return 0, err
	case "write":
		return 0, os.WriteFile(args[0], []byte(args[1]), 0o644)
	case "remove":
		return 0, os.Remove(args[0])
	case "fill": // a file of so many bytes
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return 0, err
		}
		return 0, os.WriteFile(args[0], make([]byte, n), 0o644)
	case "files": // so many empty files
		n, err := strconv.Atoi(args[0])
		for i := 0; err == nil && i < n; i++ {
			err = os.WriteFile(fmt.Sprintf("file%d", i), nil, 0o644)
		}
		return 0, err
	case "open": // so many at once
		n, err := strconv.Atoi(args[0])
		for i := 0; err == nil && i < n; i++ {
			_, err = os.Open(".")
		}
		return 0, err
	case "flood": // so many bytes of output
		n, err := strconv.Atoi(args[0])
		if err == nil {
			_, err = io.WriteString(os.Stdout, strings.Repeat("x", n))
		}
		return 0, err
	case "memory": // so many MiB, touched
		n, err := strconv.Atoi(args[0])
		var hold [][]byte
		for i := 0; err == nil && i < n; i++ {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			hold = append(hold, b)
		}
		fmt.Println(len(hold))
		return 0, err
	case "sleep":
		d, err := time.ParseDuration(args[0])
		time.Sleep(d)
		return 0, err
	case "spin":
		for n := 0; n >= 0; n++ {
			_ = strings.Repeat("x", n&1)
		}
	default:
		return 0, fmt.Errorf("%s: not known", verb)
	}
	return 0, nil
}
