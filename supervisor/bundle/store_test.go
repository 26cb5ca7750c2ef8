package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// A shop is a store with one publisher whose key a test has.
type shop struct {
	*Store
	t        *testing.T
	keys     map[string]string // private, by publisher
	recorded []Installed
}

func newShop(t *testing.T) *shop {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a store belongs to root")
	}
	s := &shop{Store: &Store{Dir: filepath.Join(t.TempDir(), "tools"),
		Shipped: []string{t.TempDir()}}, t: t, keys: map[string]string{}}
	s.addPublisher("acme")
	return s
}

func (s *shop) addPublisher(name string, more ...string) {
	s.t.Helper()
	private, public, err := trust.NewKey(name + "-key")
	if err != nil {
		s.t.Fatal(err)
	}
	s.keys[name] = private
	ring, err := trust.Single(name, public)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.SetRing(ring, true, now, func() error { return nil }); err != nil {
		s.t.Fatal(err)
	}
}

// goods are a bundle on its way: a test spoils them.
type goods struct {
	manifest  Manifest
	text      []byte
	files     []byte
	publisher string
	signed    string
	accept    string
}

// pinned is a sound manifest that pins all that it names.
func pinned(name, version string, module []byte) Manifest {
	m := sound(name, module, "go-"+name)
	m.Version = version
	m.Licences[0].SHA256, m.Licences[0].Size = hexSum([]byte("free")), 4
	m.Modules[0].Imports = []string{"wasi_snapshot_preview1.fd_write"}
	return m
}

func (s *shop) goods(m Manifest, files ...[]byte) goods {
	if files == nil {
		files = [][]byte{code(m.Name), []byte("free")}
	}
	return goods{manifest: m, text: encode(s.t, m), files: bytes.Join(files, nil),
		publisher: "acme"}
}

func (s *shop) words(version string) goods {
	return s.goods(pinned("words", version, code("words")))
}

// install signs goods that are not signed yet, and installs them.
func (s *shop) install(g goods) (Installed, error) {
	s.t.Helper()
	if g.signed == "" {
		g.signed = s.sign(g, now.Add(time.Hour))
	}
	return s.Install(Offer{Manifest: g.text, Signed: g.signed, Source: "test", Accept: g.accept},
		bytes.NewReader(g.files), now, func(in Installed) error {
			s.recorded = append(s.recorded, in)
			return nil
		})
}

func (s *shop) sign(g goods, expires time.Time) string {
	s.t.Helper()
	text, err := trust.NewStatement(g.manifest.Name, g.manifest.Version, g.text, now,
		expires).Sign(s.keys[g.publisher], "")
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func (s *shop) set() *Set {
	s.t.Helper()
	set, err := OpenPlaces(Places{Dirs: s.Shipped, Tools: s.Dir}, true)
	if err != nil {
		s.t.Fatal(err)
	}
	return set
}

// refused wants goods to be refused, for that reason, without a trace of them.
func (s *shop) refused(name string, g goods, want error) {
	s.t.Helper()
	before, records := s.tree(), len(s.recorded)
	if _, err := s.install(g); !errors.Is(err, want) {
		s.t.Errorf("%s: %v, want %v", name, err, want)
	}
	if after := s.tree(); !slices.Equal(before, after) {
		s.t.Errorf("%s: the store has %v, and had %v", name, after, before)
	}
	if len(s.recorded) != records {
		s.t.Errorf("%s: it is on record as installed", name)
	}
}

func (s *shop) tree() []string {
	var all []string
	_ = filepath.WalkDir(s.Dir, func(path string, _ os.DirEntry, _ error) error {
		all = append(all, path)
		return nil
	})
	return all
}

func TestInstall(t *testing.T) {
	s := newShop(t)
	in, err := s.install(s.words("1.2.0"))
	if err != nil || in.Publisher != "acme" || len(s.recorded) != 1 || s.recorded[0] != in {
		t.Fatalf("%+v, %v; recorded %v", in, err, s.recorded)
	}
	set := s.set()
	c, err := set.Find("go-words")
	if err != nil || set.Problems() != nil {
		t.Fatalf("%v, %v", err, set.Problems())
	}
	if got, err := c.Module.Read(); err != nil || !bytes.Equal(got, code("words")) {
		t.Errorf("its module: %q, %v", got, err)
	}
	if c.Needs == nil || len(c.Needs.Hosts) != 0 {
		t.Errorf("a pulled bundle that says nothing of hosts needs %+v, want none", c.Needs)
	}
	if b, err := set.Show("words"); err != nil || b.Origin == nil ||
		b.Origin.Manifest != in.Manifest {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := s.install(s.words("1.2.0")); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if _, err := s.install(s.words("1.10.0")); err != nil {
		t.Errorf("a newer one: %v", err)
	}
	if b, err := s.set().Show("words"); err != nil || b.Version != "1.10.0" {
		t.Errorf("%v, %v", b, err)
	}
}

// T-602, T-603: what is installed is what was signed, to the byte. The control is TestInstall.
func TestAlteredIsRefused(t *testing.T) {
	s := newShop(t)
	good := s.words("1.2.0")
	good.signed = s.sign(good, now.Add(time.Hour))
	change := func(f func(*goods)) goods {
		g := good
		g.text, g.files = bytes.Clone(g.text), bytes.Clone(g.files)
		f(&g)
		return g
	}
	s.refused("another manifest", change(func(g *goods) {
		g.text = encode(t, pinned("words", "1.2.1", code("words")))
	}), ErrAltered)
	s.refused("a space behind the manifest", change(func(g *goods) {
		g.text = append(g.text, ' ')
	}), ErrAltered)
	s.refused("a file cut off", change(func(g *goods) { g.files = g.files[:len(g.files)-1] }),
		ErrAltered)
	s.refused("no files", change(func(g *goods) { g.files = nil }), ErrAltered)
	s.refused("a byte more", change(func(g *goods) { g.files = append(g.files, 'x') }), ErrAltered)
	s.refused("files swapped", change(func(g *goods) {
		g.files = append([]byte("free"), code("words")...)
	}), ErrAltered)
	for i := range good.files {
		s.refused("a byte of a file", change(func(g *goods) { g.files[i] ^= 1 }), ErrAltered)
	}
	for _, i := range []int{0, 1, len(good.text) / 2, len(good.text) - 1} {
		s.refused("a byte of the manifest", change(func(g *goods) { g.text[i] ^= 1 }), ErrAltered)
	}
	other := s.words("1.2.0")
	other.signed = s.sign(s.goods(pinned("other", "1.2.0", code("other"))), now.Add(time.Hour))
	s.refused("another bundle's signature", other, ErrAltered)
	s.refused("an expired signature",
		goods{text: good.text, files: good.files, signed: s.sign(good, now)}, trust.ErrExpired)
	if _, err := s.install(good); err != nil {
		t.Fatalf("control: %v", err)
	}
}

// endless is a client that never stops.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.n += int64(len(p))
	return len(p), nil
}

// T-604, T-607: endless data, and sizes that are lies, cost no more than what was signed.
func TestSizesAreBoundedFirst(t *testing.T) {
	s := newShop(t)
	g := s.words("1.2.0")
	e := &endless{}
	_, err := s.Install(Offer{Manifest: g.text, Signed: s.sign(g, now.Add(time.Hour))}, e, now,
		func(Installed) error { return nil })
	if !errors.Is(err, ErrAltered) || e.n > 1<<20 {
		t.Errorf("endless files: %v after %d bytes", err, e.n)
	}
	for name, change := range map[string]func(*Manifest){
		"a module of 1 TiB":  func(m *Manifest) { m.Modules[0].Size = 1 << 40 },
		"a licence of 1 GiB": func(m *Manifest) { m.Licences[0].Size = 1 << 30 },
		"a negative size":    func(m *Manifest) { m.Modules[0].Size = -1 },
		"a licence unpinned": func(m *Manifest) {
			m.Licences[0].SHA256, m.Licences[0].Size = "",
				0
		},
		"many modules": func(m *Manifest) {
			m.Modules = slices.Repeat(m.Modules, maxModules+1)
		},
		"many commands": func(m *Manifest) {
			m.Commands = slices.Repeat(m.Commands, maxCommands+1)
		},
		"too much altogether": func(m *Manifest) { fill(m, 3, 200<<20) },
	} {
		m := pinned("words", "1.2.0", code("words"))
		change(&m)
		e := &endless{}
		bad := s.goods(m)
		_, err := s.Install(Offer{Manifest: bad.text, Signed: s.sign(bad, now.Add(time.Hour))}, e,
			now, func(Installed) error { return nil })
		if !errors.Is(err, ErrManifest) || e.n > 0 {
			t.Errorf("%s: %v after %d bytes", name, err, e.n)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(s.Dir, "store")); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func fill(m *Manifest, n int, size int64) {
	for i := range n {
		entry := m.Modules[0]
		entry.File, entry.Size = string(rune('a'+i))+".wasm", size
		m.Modules = append(m.Modules, entry)
	}
}

// T-606: a manifest is the only place where files have names, and these are plain. There is no
// archive, and so no links, modes or devices.
func TestNamesOfFilesArePlain(t *testing.T) {
	s := newShop(t)
	for _, name := range []string{"../all.wasm", "/etc/all.wasm", "a/../../all.wasm", `C:\all.wasm`,
		`..\all.wasm`, ".wasm", "..wasm", "-all.wasm", "a/b.wasm", "all.wasm\x00", "аll.wasm",
		"all.wasm/", "./all.wasm", " all.wasm", "all\n.wasm", "//all.wasm", ManifestFile,
		SignatureFile, strings.Repeat("a", 120) + ".wasm"} {
		m := pinned("words", "1.2.0", code("words"))
		m.Modules[0].File, m.Commands[0].Module = name, name
		s.refused("module "+name, s.goods(m), ErrManifest)
		m = pinned("words", "1.2.0", code("words"))
		m.Licences[0].File = strings.TrimSuffix(name, ".wasm")
		s.refused("licence "+name, s.goods(m), ErrManifest)
	}
	m := pinned("words", "1.2.0", code("words"))
	twin := m.Modules[0]
	twin.File = "ALL.wasm"
	m.Modules = append(m.Modules, twin)
	s.refused("twins but for case", s.goods(m, code("words"), code("words"), []byte("free")),
		ErrManifest)
	in, err := s.install(s.words("1.2.0"))
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	// No mode is taken over, none is special.
	_ = filepath.WalkDir(filepath.Dir(s.folder(in.Manifest, in.Name)), func(path string,
		d os.DirEntry, _ error) error {
		info, err := d.Info()
		if err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeSymlink|0o022) != 0 ||
			!d.IsDir() && info.Mode() != 0o644 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		return nil
	})
}

// T-604: nothing older than what was seen, also after it was removed, and no other content of the
// same version.
func TestRollbackIsRefused(t *testing.T) {
	s := newShop(t)
	if _, err := s.install(s.words("1.10.0")); err != nil {
		t.Fatal(err)
	}
	other := pinned("words", "1.10.0", code("words"))
	other.About = "another"
	s.refused("an older one", s.words("1.9.9"), trust.ErrRollback)
	s.refused("another content of the same version", s.goods(other), trust.ErrRollback)
	nothing := func(Installed) error { return nil }
	if _, err := s.Remove("words", false, nothing); err != nil {
		t.Fatal(err)
	}
	if _, err := s.set().Find("go-words"); err == nil {
		t.Error("what was removed is found")
	}
	s.refused("an older one, after it was removed", s.words("1.9.9"), trust.ErrRollback)
	if _, err := s.install(s.words("1.10.0")); err != nil {
		t.Errorf("the same again: %v", err)
	}
	// The way back from a version that should never have been (fast-forward): an operator's word.
	if _, err := s.Remove("words", true, nothing); err != nil {
		t.Fatal(err)
	}
	if _, err := s.install(s.words("1.9.9")); err != nil {
		t.Errorf("an older one, after it was forgotten: %v", err)
	}
	var missing *NotFoundError
	if _, err := s.Remove("search", false, nothing); !errors.As(err, &missing) ||
		!strings.Contains(err.Error(), "came with jail") {
		t.Errorf("of jail's own: %v", err)
	}
	if _, err := s.Remove("nothing", false, nothing); !errors.As(err, &missing) {
		t.Errorf("remove what is not there: %v", err)
	}
}

// T-608: one spelling of names and versions, and no name of another publisher's.
func TestNamesAreTheirPublishers(t *testing.T) {
	s := newShop(t)
	s.addPublisher("evil")
	if _, err := s.install(s.words("1.2.0")); err != nil {
		t.Fatal(err)
	}
	twin := s.words("9.0.0")
	twin.publisher = "evil"
	s.refused("another publisher's bundle of the same name", twin, ErrTaken)
	for _, name := range officialNames {
		s.refused(name, s.goods(pinned(name, "9.0.0", code(name))), ErrTaken)
	}
	install(t, s.Shipped[0], "extra", "x")
	s.refused("one that came with jail", s.goods(pinned("extra", "9.0.0", code("extra"))), ErrTaken)
	for _, name := range []string{"Words", "wоrds", "words ", "words/x", "..", "", "wоrds\u200b"} {
		m := pinned(name, "1.3.0", code("words"))
		if _, err := s.install(s.goods(m, code("words"), []byte("free"))); err == nil {
			t.Errorf("name %q: installed", name)
		}
	}
	for _, version := range []string{"1.3", "1.3.0.0", "v1.3.0", "1.3.0-rc1", "1.3.0+x", "01.3.0",
		"1.3.-1", "１.3.0", ""} {
		if _, err := s.install(s.words(version)); err == nil {
			t.Errorf("version %q: installed", version)
		}
	}
}

// T-609: what a bundle newly asks for is agreed to, for that very manifest, or it is not installed.
func TestMoreNeedsAreAgreedTo(t *testing.T) {
	s := newShop(t)
	asks := func(version string, hosts ...string) goods {
		m := pinned("words", version, code("words"))
		m.Needs = &Needs{Hosts: append([]string{}, hosts...), Mounts: []string{}}
		return s.goods(m)
	}
	digest := func(g goods) string { return "sha256:" + hexSum(g.text) }
	s.refused("a host, with the first version", asks("1.0.0", "a.example"), ErrNotAccepted)
	first := asks("1.0.0", "a.example")
	first.accept = digest(first)
	if _, err := s.install(first); err != nil {
		t.Fatalf("control: %v", err)
	}
	if _, err := s.install(asks("1.1.0", "a.example")); err != nil {
		t.Errorf("no more than before: %v", err)
	}
	s.refused("a second host", asks("1.2.0", "a.example", "b.example"), ErrNotAccepted)
	reused := asks("1.2.0", "a.example", "b.example")
	reused.accept = digest(first)
	s.refused("with what was agreed to for another version", reused, ErrNotAccepted)
	m := pinned("words", "1.2.0", code("words"))
	m.Modules[0].Imports = append(m.Modules[0].Imports, "wasi_snapshot_preview1.sock_accept")
	s.refused("sockets", s.goods(m), ErrNotAccepted)
	for name, needs := range map[string]string{
		"a mount with ..":     `{"hosts":[],"mounts":["/a/../b"]}`,
		"a relative mount":    `{"hosts":[],"mounts":["a"]}`,
		"a host that is none": `{"hosts":["a b"],"mounts":[]}`,
		"no hosts":            `{"mounts":[]}`, "null": `{"hosts":null,"mounts":[]}`,
	} {
		g := s.words("1.2.0")
		g.text = bytes.Replace(g.text, []byte(`"limits":`), []byte(`"needs":`+needs+`,"limits":`),
			1)
		s.refused(name, g, ErrManifest)
	}
}

// T-610: what lies in the store is verified whenever it is used; who can write there is root.
func TestInstalledIsVerifiedAtUse(t *testing.T) {
	s := newShop(t)
	in, err := s.install(s.words("1.2.0"))
	if err != nil {
		t.Fatal(err)
	}
	dir := s.folder(in.Manifest, in.Name)
	found := func() error {
		set := s.set()
		c, err := set.Find("go-words")
		if err == nil {
			_, err = c.Module.Read()
		}
		return errors.Join(append(set.Problems(), err)...)
	}
	if err := found(); err != nil {
		t.Fatalf("control: %v", err)
	}
	module, manifest := filepath.Join(dir, "all.wasm"), filepath.Join(dir, ManifestFile)
	spoil := func(name string, change, mend func() error) {
		t.Helper()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := found(); err == nil {
			t.Errorf("%s: nobody noticed", name)
		}
		if err := mend(); err != nil {
			t.Fatal(err)
		}
		if err := found(); err != nil {
			t.Fatalf("control, after %s: %v", name, err)
		}
	}
	rewrite := func(path string, f func([]byte) []byte) (func() error, func() error) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return func() error { return os.WriteFile(path, f(bytes.Clone(text)), 0o644) },
			func() error { return os.WriteFile(path, text, 0o644) }
	}
	flip := func(b []byte) []byte { b[len(b)-3] ^= 1; return b }
	for _, path := range []string{module, manifest, filepath.Join(dir, SignatureFile),
		filepath.Join(s.Dir, indexFile)} {
		if path == filepath.Join(s.Dir, indexFile) {
			flip = func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"acme"`), []byte(`"evil"`), 1)
			}
		}
		change, mend := rewrite(path, flip)
		spoil(path, change, mend)
	}
	spoil("a link in place of the module", func() error {
		return errors.Join(os.Rename(module, module+".old"), os.Symlink(module+".old", module))
	}, func() error { return os.Rename(module+".old", module) })
	spoil("a module that others can write", func() error { return os.Chmod(module, 0o666) },
		func() error { return os.Chmod(module, 0o644) })
	spoil("a file more", func() error {
		return os.WriteFile(filepath.Join(dir, "more"), nil, 0o644)
	}, func() error { return os.Remove(filepath.Join(dir, "more")) })
	spoil("the signature removed", func() error {
		return os.Rename(filepath.Join(dir, SignatureFile), filepath.Join(s.Dir, "sig"))
	},
		func() error {
			return os.Rename(filepath.Join(s.Dir, "sig"), filepath.Join(dir, SignatureFile))
		})
	// The publisher's keys go, and with them the trust in what is installed.
	if err := s.RemoveRing("acme", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := found(); err == nil {
		t.Error("a bundle runs of a publisher who is trusted no more")
	}
}

// A catalog sees at once what was installed, removed and withdrawn.
func TestCatalogIsOfNow(t *testing.T) {
	s := newShop(t)
	c, err := OpenCatalog(Places{Dirs: s.Shipped, Tools: s.Dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find("go-words"); err == nil {
		t.Fatal("found before it was installed")
	}
	if _, err := s.install(s.words("1.2.0")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find("go-words"); err != nil || len(c.List()) != 1 {
		t.Errorf("after it was installed: %v", err)
	}
	// As long as the next change could have the time of the last one it looks again, and what it
	// finds is the same: jails that wait do not end for that.
	first, err := c.Now()
	if again, err2 := c.Now(); err != nil || err2 != nil || first != again {
		t.Errorf("nothing was changed, and it is another set: %v, %v", err, err2)
	}
	if _, err := s.Remove("words", false, func(Installed) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find("go-words"); err == nil {
		t.Error("found after it was removed")
	}
	if err := os.WriteFile(filepath.Join(s.Dir, indexFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find("go-words"); err == nil || c.List() != nil {
		t.Error("an index that cannot be read is no catalog")
	}
}

// T-613: there is nothing in a manifest that could be run when it is installed. T-611: what is not
// known is refused.
func TestNoHooks(t *testing.T) {
	s := newShop(t)
	for _, key := range []string{"install", "postinstall", "scripts", "hooks", "exec", "NAME",
		"format "} {
		g := s.words("1.2.0")
		g.text = bytes.Replace(g.text, []byte(`{"format"`), []byte(`{"`+key+`":"/bin/sh","format"`),
			1)
		s.refused(key, g, ErrManifest)
	}
	for name, change := range map[string]func([]byte) []byte{
		"BOM":            func(b []byte) []byte { return append([]byte("\xef\xbb\xbf"), b...) },
		"a second value": func(b []byte) []byte { return append(b, "{}"...) },
		"a key twice": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"name":`), []byte(`"name":"x","name":`), 1)
		},
		"a huge number": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"format":1`), []byte(`"format":1e999`), 1)
		},
	} {
		g := s.words("1.2.0")
		g.text = change(g.text)
		s.refused(name, g, ErrManifest)
	}
}

// T-614: a module is of the kind that it is said to be.
func TestKindOfModules(t *testing.T) {
	s := newShop(t)
	for name, module := range map[string]string{
		"ELF": "\x7fELF\x02\x01\x01\x00xxxxxxxx", "a script": "#!/bin/sh\nexit 0\n",
		"a component": "\x00asm\x0d\x00\x01\x00xxxx", "zip": "PK\x03\x04xxxxxxxx",
		"short":      "\x00as",
		"a polyglot": "#!/bin/sh\n\x00asm\x01\x00\x00\x00",
	} {
		m := pinned("words", "1.2.0", []byte(module))
		s.refused(name, s.goods(m, []byte(module), []byte("free")), ErrAltered)
	}
	asked := errors.New("asked")
	s.Check = func(ModuleEntry, []byte) error { return asked }
	s.refused("one that the engine would refuse", s.words("1.2.0"), asked)
	s.Check = nil
	if _, err := s.install(s.words("1.2.0")); err != nil {
		t.Fatalf("control: %v", err)
	}
}

// Without a record nothing is installed, and what a crash leaves is nothing.
func TestInstallIsWholeOrNot(t *testing.T) {
	s := newShop(t)
	g := s.words("1.2.0")
	noRecord := errors.New("no room for a record")
	_, err := s.Install(Offer{Manifest: g.text, Signed: s.sign(g, now.Add(time.Hour))},
		bytes.NewReader(g.files), now, func(Installed) error { return noRecord })
	if !errors.Is(err, noRecord) || len(s.set().List()) != 0 {
		t.Errorf("without a record: %v", err)
	}
	// A folder that no index names: of an install that was cut off.
	left := filepath.Join(s.Dir, "store", ".new-left")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	old := now.Add(-2 * keepOld)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	cut := &cutOff{r: bytes.NewReader(g.files), n: 5}
	if _, err := s.Install(Offer{Manifest: g.text, Signed: s.sign(g, now.Add(time.Hour))}, cut, now,
		func(Installed) error { return nil }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a client that goes away: %v", err)
	}
	if _, err := s.install(g); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was cut off is still there: %v", err)
	}
	var ix map[string]any
	text, err := os.ReadFile(filepath.Join(s.Dir, indexFile))
	if err != nil || json.Unmarshal(text, &ix) != nil {
		t.Errorf("index: %v\n%s", err, text)
	}
}

type cutOff struct {
	r io.Reader
	n int
}

func (c *cutOff) Read(p []byte) (int, error) {
	if c.n == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.r.Read(p[:min(len(p), c.n)])
	c.n -= n
	return n, err
}
