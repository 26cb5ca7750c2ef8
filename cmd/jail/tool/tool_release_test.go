package tool_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestRelease does what docs/tools.md says of a release of jail's own bundles, with keys of the
// test's own: a ring, a signed bundle that is pulled by its tag, a new key, a stolen one, a bad
// bundle, and what has expired.
func TestRelease(t *testing.T) {
	w := newPullWorld(t)
	pub := map[string]string{}
	for _, name := range []string{"root-a", "root-b", "jail-2026", "jail-2027"} {
		o := w.Jail("tool", "key", "new", name)
		w.Wants(o, 0, "")
		pub[name] = strings.TrimSpace(o.Out)
	}
	id := func(name string) string {
		return strings.Join(strings.SplitN(pub[name], "+", 3)[:2], "+")
	}
	registry := strings.TrimSuffix(w.repository, "/words")
	ring := func(version int, expires time.Time, lines ...string) string {
		text := fmt.Sprintf(
			"jail key ring\npublisher jail\nversion %d\nexpires %s\nregistry %s\nroots 2\nroot %s\nroot %s\nkeys 1\n", version,
			expires.UTC().Format(time.RFC3339), registry, pub["root-a"], pub["root-b"])
		path := filepath.Join(w.Root, fmt.Sprintf("v%d.ring", version))
		if err := os.WriteFile(path, []byte(text+strings.Join(lines, "\n")+"\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	signed := func(path string) string {
		for _, root := range []string{"root-a", "root-b"} {
			w.Wants(w.Jail("tool", "key", "sign", "--key", root+".key", path), 0, "")
		}
		return path
	}
	later := time.Now().Add(1000 * time.Hour)
	release := func(key string, flags ...string) cmdtest.Outcome {
		if err := os.RemoveAll(filepath.Join(w.dir, "bundle.sig")); err != nil {
			t.Fatal(err)
		}
		w.Wants(w.Jail(append(append([]string{"tool", "sign", "--key", key + ".key"}, flags...),
			w.dir)...), 0, "")
		return w.Jail("tool", "push", "--plain-http", w.dir, w.repository)
	}

	// A build from source knows no key: nothing is taken as jail's own, and what was built says
	// that nobody signed it.
	w.publish("1.0.0")
	tag := w.repository + ":1.0.0"
	w.Wants(w.pull(tag), 2, "a digest is wanted")
	if o := w.Jail("tool", "key", "list"); !strings.Contains(o.Out, "nobody yet") {
		t.Errorf("keys: %s", o.Out)
	}
	if o := w.Jail("tool", "list"); !strings.Contains(o.Out, "nobody") || o.Code != 0 {
		t.Errorf("list: %s", o.Out)
	}
	if o := w.Jail("tool", "verify", "core-utils"); !strings.Contains(o.Out,
		"not signed: it came with jail, or was built here") || o.Code != 0 {
		t.Errorf("verify: %s", o.Out)
	}

	// A ring, and bundles that its keys signed or did not.
	w.Wants(w.Jail("tool", "key", "add", "jail", signed(ring(1, later, "key "+pub["jail-2026"]))),
		0, "")
	w.Wants(w.pull(tag), 126, "not signed by enough known keys") // by acme alone
	w.Wants(release("jail-2026"), 0, "")
	w.Wants(w.pull(tag), 0, "")
	w.Wants(w.runs(), 0, "")
	if o := w.Jail("tool", "verify", "words"); !strings.Contains(o.Out,
		"as in the manifest that jail signed") {
		t.Errorf("verify: %s", o.Out)
	}
	if o := w.Jail("tool", "show", "words"); !strings.Contains(o.Out, "signed by  jail") {
		t.Errorf("show: %s", o.Out)
	}

	// Another key, and the old one stolen: both roots say so.
	second := ring(2, later, "key "+pub["jail-2027"], "revoked-key "+id("jail-2026"))
	w.Wants(w.Jail("tool", "key", "update", second), 126, "not signed by enough known keys")
	w.Wants(w.Jail("tool", "key", "sign", "--key", "root-a.key", second), 0, "")
	w.Wants(w.Jail("tool", "key", "update", second), 126, "not signed by enough known keys")
	// Nor by an operator's word.
	w.Wants(w.Jail("tool", "key", "add", "jail", second), 126, "not signed by enough known keys")
	w.Wants(w.Jail("tool", "key", "update", signed(second)), 0, "")
	w.Wants(w.runs(), 127, "a key that signed it was revoked by its publisher")
	w.Wants(w.Jail("tool", "verify"), 1, "")
	w.Wants(w.pull(tag), 126, "")
	w.Wants(release("jail-2027"), 0, "")
	o := w.pull(tag)
	w.Wants(o, 0, "")
	w.Wants(w.runs(), 0, "")
	w.Wants(w.Jail("tool", "key", "update", filepath.Join(w.Root, "v1.ring")), 126,
		"older than what was seen")

	// A bundle that is bad.
	shown := w.Jail("tool", "show", "words").Out
	_, manifest, _ := strings.Cut(shown, "manifest")
	manifest = strings.Fields(manifest)[0]
	w.Wants(w.Jail("tool", "key", "update", signed(ring(3, later, "key "+pub["jail-2027"],
		"revoked-key "+id("jail-2026"), "revoked "+manifest))), 0, "")
	w.Wants(w.runs(), 127, "revoked by its publisher")
	w.Wants(w.pull(tag), 126, "revoked by its publisher")

	// What has expired is not installed any more.
	w.publish("1.1.0")
	w.Wants(release("jail-2027", "--expires", "1s"), 0, "")
	time.Sleep(1200 * time.Millisecond)
	w.Wants(w.pull(w.repository+":1.1.0"), 126, "expired")
	w.Wants(w.Jail("tool", "key", "update",
		signed(ring(4, time.Now().Add(-time.Hour), "key "+pub["jail-2027"]))), 126, "expired")
	w.Wants(release("jail-2027"), 0, "")
	w.Wants(w.pull(w.repository+":1.1.0"), 0, "")
	w.Wants(w.runs(), 0, "")
}
