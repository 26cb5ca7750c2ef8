// Command probe is a WASI tool that does one thing that its first argument names.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		fmt.Println("probe")
		return
	}
	switch args[0] {
	case "args":
		for _, a := range args[1:] {
			fmt.Printf("%q\n", a)
		}
	case "env":
		for _, e := range os.Environ() {
			fmt.Println(e)
		}
	case "exit":
		code, _ := strconv.Atoi(args[1])
		os.Exit(code)
	case "both": // how often
		times := 1
		if len(args) > 1 {
			times, _ = strconv.Atoi(args[1])
		}
		for range times {
			fmt.Println("to stdout")
			fmt.Fprintln(os.Stderr, "to stderr")
		}
	case "count": // how much comes in
		n, err := io.Copy(io.Discard, os.Stdin)
		fmt.Println(n, err)
	case "flood": // MiB of output
		n, _ := strconv.Atoi(args[1])
		block := []byte(strings.Repeat("x", 1<<20))
		for range n {
			if _, err := os.Stdout.Write(block); err != nil {
				fmt.Fprintln(os.Stderr, "write:", err)
				os.Exit(1)
			}
		}
	case "memory": // MiB of memory, touched
		n, _ := strconv.Atoi(args[1])
		hold := make([][]byte, 0, n)
		for range n {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			hold = append(hold, b)
		}
		fmt.Println(len(hold))
	case "spin":
		for i := 0; ; i++ {
			if i < 0 {
				fmt.Println(i)
			}
		}
	case "sleep":
		d, _ := time.ParseDuration(args[1])
		time.Sleep(d)
	case "files": // many files
		n, _ := strconv.Atoi(args[1])
		for i := range n {
			if err := os.WriteFile(fmt.Sprintf("file%d", i), nil, 0o644); err != nil {
				fmt.Println(i, err)
				os.Exit(1)
			}
		}
	case "dirs": // many directories with a file in each
		n, _ := strconv.Atoi(args[1])
		for i := range n {
			dir := fmt.Sprintf("dir%d", i)
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(dir+"/f", nil, 0o644)); err != nil {
				fmt.Println(i, err)
				os.Exit(1)
			}
		}
	case "sparse": // so many files of 32 MiB that hold nothing
		n, _ := strconv.Atoi(args[1])
		for i := range n {
			name := fmt.Sprintf("sparse%d", i)
			if err := errors.Join(os.WriteFile(name, nil, 0o644), os.Truncate(name, 32<<20)); err != nil {
				fmt.Println(i, err)
				os.Exit(1)
			}
		}
	case "fill": // a file of so many MiB
		n, _ := strconv.Atoi(args[1])
		f, err := os.Create("filled")
		for i := 0; err == nil && i < n; i++ {
			_, err = f.Write(make([]byte, 1<<20))
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "open": // so many at once
		n, _ := strconv.Atoi(args[1])
		for i := range n {
			if _, err := os.Open("."); err != nil {
				fmt.Println(i, err)
				os.Exit(1)
			}
		}
	case "keep": // so many MiB of memory, touched, while it answers lines
		n, _ := strconv.Atoi(args[1])
		kept := make([]byte, n<<20)
		for i := 0; i < len(kept); i += 4096 {
			kept[i] = 1
		}
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			fmt.Println("got", s.Text())
		}
		fmt.Println(kept[0])
	case "lines": // stdin, a line at a time, answered
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			fmt.Println("got", s.Text())
		}
	case "twice": // answers a line on both outputs; then ends with its argument
		code, _ := strconv.Atoi(args[1])
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			fmt.Println("out", s.Text())
			fmt.Fprintln(os.Stderr, "err", s.Text())
		}
		os.Exit(code)
	case "self": // as lines; then its arguments and variables
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			fmt.Println("got", s.Text())
		}
		fmt.Printf("%q %q\n", args[1:], os.Environ())
	case "hold": // answers a line, then waits for nothing
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Print("got ", line)
		time.Sleep(time.Hour)
	case "fillwhen": // as fill, when it is told to
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadString('\n')
		n, _ := strconv.Atoi(args[1])
		if err := os.WriteFile("filled", make([]byte, n<<20), 0o644); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "panic":
		panic("on purpose")
	default:
		fmt.Fprintln(os.Stderr, "probe: unknown verb", args[0])
		os.Exit(2)
	}
}
