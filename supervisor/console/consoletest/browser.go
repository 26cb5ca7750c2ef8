// Package consoletest drives a real browser, headless, for tests of the console: Chromium over the
// pipe of its DevTools protocol, with nothing between.
package consoletest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds one answer of the browser, against hanging: on a busy machine it takes seconds to
// start.
const patience = 2 * time.Minute

// A Browser has one tab.
type Browser struct {
	t       testing.TB
	in      *os.File
	out     *bufio.Reader
	session string

	mu       sync.Mutex
	next     int
	answers  map[int]chan answer
	loaded   chan struct{}
	requests []string
	dialogs  []string
	console  []string
	gone     error
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// find returns the browser's program. Where none is installed the test is skipped, or fails where
// all is meant to be there (JAIL_TEST_LONG=1).
func find(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("JAIL_TEST_LONG") == "1" {
		t.Fatal("no Chromium is installed: .ci/deps console installs it")
	}
	t.Skip("no Chromium is installed: .ci/deps console installs it")
	return ""
}

// Start starts a browser with a profile of its own, which ends with the test, and with further
// arguments.
func Start(t testing.TB, args ...string) *Browser {
	t.Helper()
	program := find(t)
	home := t.TempDir()
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, append(args, "--headless", "--remote-debugging-pipe",
		"--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-extensions", "--hide-scrollbars", "--lang=en-US",
		"--force-device-scale-factor=1", "--no-proxy-server", "--user-data-dir="+home,
		"about:blank")...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &Browser{t: t, in: in, out: bufio.NewReaderSize(out, 1<<20),
		answers: map[int]chan answer{}, loaded: make(chan struct{}, 64)}
	t.Cleanup(func() {
		cancel()
		// The browser was killed, which Wait reports as an error.
		_ = cmd.Wait()
		in.Close()
		out.Close()
	})
	go b.read()
	b.attach()
	return b
}

func (b *Browser) attach() {
	b.t.Helper()
	var targets struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	b.call("Target.getTargets", nil, &targets)
	for _, target := range targets.TargetInfos {
		if target.Type == "page" {
			var attached struct{ SessionID string }
			b.call("Target.attachToTarget",
				map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
			b.session = attached.SessionID
			break
		}
	}
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	b.Size(1200, 800)
}

// read takes the messages of the browser, each of which ends with a NUL.
func (b *Browser) read() {
	for {
		text, err := b.out.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.gone = fmt.Errorf("the browser went away: %w", err)
			for _, c := range b.answers {
				close(c)
			}
			b.answers = map[int]chan answer{}
			b.mu.Unlock()
			return
		}
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			answer
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		if m.ID == 0 {
			b.event(m.Method, m.Params)
			continue
		}
		b.mu.Lock()
		c := b.answers[m.ID]
		delete(b.answers, m.ID)
		b.mu.Unlock()
		if c != nil {
			c <- m.answer
		}
	}
}

func (b *Browser) event(method string, params json.RawMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch method {
	case "Page.loadEventFired":
		select {
		case b.loaded <- struct{}{}:
		default:
		}
	case "Network.requestWillBeSent":
		var p struct{ Request struct{ URL string } }
		// What it is not is seen by the test that wants it.
		_ = json.Unmarshal(params, &p)
		b.requests = append(b.requests, p.Request.URL)
	case "Page.javascriptDialogOpening":
		b.dialogs = append(b.dialogs, string(params))
	case "Runtime.exceptionThrown", "Log.entryAdded":
		b.console = append(b.console, string(params))
	}
}

func (b *Browser) call(method string, params, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

func (b *Browser) try(method string, params, result any) error {
	if params == nil {
		params = struct{}{}
	}
	c := make(chan answer, 1)
	b.mu.Lock()
	if b.gone != nil {
		b.mu.Unlock()
		return b.gone
	}
	b.next++
	id := b.next
	b.answers[id] = c
	b.mu.Unlock()
	m := map[string]any{"id": id, "method": method, "params": params}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case a, ok := <-c:
		switch {
		case !ok:
			return b.gone
		case a.Error != nil:
			return errors.New(a.Error.Message)
		case result != nil:
			return json.Unmarshal(a.Result, result)
		}
		return nil
	case <-time.After(patience):
		return errors.New("no answer")
	}
}

// Size sets the size of the window, in pixels.
func (b *Browser) Size(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": 1, "mobile": false}, nil)
}

// Dark sets whether the user prefers dark pages (prefers-color-scheme).
func (b *Browser) Dark(on bool) {
	b.t.Helper()
	value := map[bool]string{true: "dark", false: "light"}[on]
	b.call("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme",
			"value": value}}}, nil)
}

// Scripts switches the scripts of pages on or off. Eval works all the same.
func (b *Browser) Scripts(on bool) {
	b.t.Helper()
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": !on}, nil)
}

// Open goes to an address as if it were typed, and returns when the page is there.
func (b *Browser) Open(url string) {
	b.t.Helper()
	b.settle(func() { b.call("Page.navigate", map[string]any{"url": url}, nil) })
}

// settle does something that loads a page, and waits for that.
func (b *Browser) settle(do func()) {
	b.t.Helper()
	// After a reply, all loads before it have been reported.
	b.Peek("0")
	for len(b.loaded) > 0 {
		<-b.loaded
	}
	do()
	select {
	case <-b.loaded:
	case <-time.After(patience):
		b.t.Fatalf("no page was loaded; at %s", b.Text("location.href"))
	}
}

// Click clicks on what a CSS selector names; loads says that this leads to another page.
func (b *Browser) Click(selector string, loads bool) {
	b.t.Helper()
	click := func() {
		if b.Text(fmt.Sprintf("(e => e ? (e.click(), 'ok') : 'none')(document.querySelector(%q))",
			selector)) != "ok" {
			b.t.Fatalf("%s: nothing is %s; the page:\n%s", b.Text("location.href"), selector,
				b.Text("document.body.innerText"))
		}
	}
	if loads {
		b.settle(click)
	} else {
		click()
	}
}

// Key types one key, such as Tab or Enter.
func (b *Browser) Key(key string, loads bool) {
	b.t.Helper()
	press := func() {
		code := map[string]int{"Tab": 9, "Enter": 13, " ": 32}[key]
		text := map[string]string{"Enter": "\r", " ": " "}[key]
		for _, kind := range []string{"keyDown", "keyUp"} {
			b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key,
				"windowsVirtualKeyCode": code,
				"text":                  map[bool]string{true: text}[kind == "keyDown"]}, nil)
		}
	}
	if loads {
		b.settle(press)
	} else {
		press()
	}
}

// AccessKey types the access key of a button or link, a lower-case letter, which leads to a page.
func (b *Browser) AccessKey(letter string) {
	b.t.Helper()
	b.settle(func() {
		for _, kind := range []string{"keyDown", "keyUp"} {
			b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": letter,
				"code": "Key" + strings.ToUpper(letter), "modifiers": 1,
				"text": letter, "unmodifiedText": letter,
				"windowsVirtualKeyCode": strings.ToUpper(letter)[0]}, nil)
		}
	})
}

// Text is what an expression gives, as text.
func (b *Browser) Text(expression string) string {
	b.t.Helper()
	text, err := b.evaluate(expression)
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return text
}

// Peek is Text while pages come and go by themselves: "" where there is none at the moment.
func (b *Browser) Peek(expression string) string {
	text, err := b.evaluate(expression)
	if err != nil {
		return ""
	}
	return text
}

// Page is the text that a reader sees, or "" while there is none.
func (b *Browser) Page() string { return b.Peek("document.body.innerText") }

func (b *Browser) evaluate(expression string) (string, error) {
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	if err := b.try("Runtime.evaluate",
		map[string]any{"expression": expression, "returnByValue": true}, &r); err != nil {
		return "", err
	}
	if len(r.ExceptionDetails) > 0 {
		return "", errors.New(string(r.ExceptionDetails))
	}
	if s, ok := r.Result.Value.(string); ok {
		return s, nil
	}
	return strings.TrimSpace(fmt.Sprint(r.Result.Value)), nil
}

// Screenshot writes what the window shows as PNG.
func (b *Browser) Screenshot(file string) {
	b.t.Helper()
	var r struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &r)
	png, err := base64.StdEncoding.DecodeString(r.Data)
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// Seen is what happened since it was asked last: addresses that were asked for, dialogs that a
// script opened, and what stood in the browser's console.
func (b *Browser) Seen() (requests, dialogs, console []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests, dialogs, console = b.requests, b.dialogs, b.console
	b.requests, b.dialogs, b.console = nil, nil, nil
	return requests, dialogs, console
}
