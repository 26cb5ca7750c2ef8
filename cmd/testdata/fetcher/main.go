//go:build wasip1

// Command fetcher asks for URLs in the way of a WASI guest: with Go's own HTTP client, over the streams of its one descriptor to the fetch proxy.
//
//	fetcher [-cat FILE] [-X METHOD] [-d BODY] [-H NAME:VALUE] [-raw] [-again] URL...
//
// It prints the status and the body of each answer; with -again it goes on after one that did not come. With -raw its standard input is what it sends, on one stream, and what comes back is printed.
// With -cat it prints a file, and asks for nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fetcher:", err)
		os.Exit(1)
	}
}

func run() error {
	method := flag.String("X", "GET", "")
	body := flag.String("d", "", "")
	header := flag.String("H", "", "")
	raw := flag.Bool("raw", false, "")
	again := flag.Bool("again", false, "") // go on after an error
	cat := flag.String("cat", "", "")
	flag.Parse()
	if *cat != "" {
		text, err := os.ReadFile(*cat)
		fmt.Print(string(text))
		return err
	}
	fd, err := strconv.Atoi(os.Getenv("JAIL_FETCH_FD"))
	if err != nil {
		return fmt.Errorf("there is no fetch proxy")
	}
	listener, err := net.FileListener(os.NewFile(uintptr(fd), "fetch"))
	if err != nil {
		return err
	}
	if *raw {
		return talk(listener)
	}
	client := http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: "fetch:80"}),
			DialContext: func(context.Context, string, string) (net.Conn, error) { return listener.Accept() },
		},
	}
	var failed error
	for _, u := range flag.Args() {
		req, err := http.NewRequest(*method, u, strings.NewReader(*body))
		if err != nil {
			return err
		}
		if name, value, ok := strings.Cut(*header, ":"); ok {
			req.Header.Set(name, value)
		}
		resp, err := client.Do(req)
		if err != nil && *again {
			fmt.Fprintln(os.Stderr, "fetcher:", err)
			failed = errors.New("not everything came")
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println(resp.StatusCode)
		if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
			return err
		}
		resp.Body.Close()
	}
	return failed
}

func talk(listener net.Listener) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	if _, err := conn.Write(in); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	return err
}
