package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/rootfs"
	"github.com/jail-sandbox/jail/supervisor/flock"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// An object is JSON that is written as it stands: what is hostile no type could hold.
type object map[string]any

// A maker makes a directory in the OCI image layout.
type maker struct {
	t   testing.TB
	dir string
}

func newMaker(t testing.TB) maker {
	t.Helper()
	m := maker{t, t.TempDir()}
	if err := errors.Join(os.Chmod(m.dir, 0o755),
		os.MkdirAll(filepath.Join(m.dir, "blobs/sha256"), 0o755)); err != nil {
		t.Fatal(err)
	}
	return m
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (m maker) path(digest string) string {
	return filepath.Join(m.dir, "blobs/sha256", strings.TrimPrefix(digest, "sha256:"))
}

// blob writes a blob and returns its descriptor.
func (m maker) blob(mediaType string, text []byte) object {
	m.t.Helper()
	d := digestOf(text)
	if err := os.WriteFile(m.path(d), text, 0o644); err != nil {
		m.t.Fatal(err)
	}
	return object{"mediaType": mediaType, "digest": d, "size": len(text)}
}

func (m maker) document(mediaType string, v any) object {
	m.t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		m.t.Fatal(err)
	}
	return m.blob(mediaType, text)
}

func (m maker) index(manifests ...object) {
	m.t.Helper()
	text, err := json.Marshal(object{"schemaVersion": 2, "manifests": manifests})
	if err == nil {
		err = os.WriteFile(filepath.Join(m.dir, "index.json"), text, 0o644)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// An image is what a test makes; a part that is its zero value is the usual one.
type image struct {
	config, platform object
	layers           []object
	diffs            []string
}

func (m maker) image(i image) object {
	m.t.Helper()
	config := object{"architecture": runtime.GOARCH, "os": "linux", "config": i.config,
		"rootfs": object{"type": "layers", "diff_ids": i.diffs}}
	for name, value := range i.platform {
		config[name] = value
	}
	return m.document(typeManifest, object{"schemaVersion": 2, "mediaType": typeManifest,
		"config": m.document(typeConfig, config), "layers": i.layers})
}

// files is the archive of a layer, of regular files by their names.
func files(t testing.TB, all map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range all {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755,
			Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(text)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstandard(t testing.TB, text []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(text, nil)
}

// simple is an image of one file of that content.
func (m maker) simple(text string) object {
	m.t.Helper()
	layer := files(m.t, map[string]string{"bin/x": text})
	return m.image(image{layers: []object{m.blob(typeLayer, layer)}, diffs: []string{digestOf(layer)}})
}

func newStore(t testing.TB) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	s.bounds = rootfs.Bounds{Bytes: 8 << 20, Entries: 1000}
	return s
}

func self() asuser.Caller {
	return asuser.Caller{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
}

func (s *Store) use(t testing.TB, dir string) (*Held, error) {
	t.Helper()
	h, err := s.Use(t.Context(), self(), Reference{Dir: dir})
	if h != nil {
		t.Cleanup(h.Close)
	}
	return h, err
}

func TestParse(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for text, want := range map[string]Reference{
		"debian":                        {Name: "debian"},
		"oci:/a/b":                      {Dir: "/a/b"},
		"oci:/a//b/":                    {Dir: "/a/b"},
		"oci:/a/b:tag":                  {Dir: "/a/b", Tag: "tag"},
		"oci:/a:b/c":                    {Dir: "/a:b/c"},
		"oci:/a/b@" + digest:            {Dir: "/a/b", Digest: digest},
		"oci:/a/b:t@" + digest:          {Dir: "/a/b", Tag: "t", Digest: digest},
		"oci:/a/../b":                   {Dir: "/b"},
		"":                              {},
		"Debian":                        {},
		"../debian":                     {},
		"a/b":                           {},
		"oci:":                          {},
		"oci:a/b":                       {},
		"oci:/a/b:":                     {},
		"oci:/a/b@sha256:abc":           {},
		"oci:/a/b@" + digest + "\x00":   {},
		"docker://docker.io/lib/debian": {},
	} {
		got, err := Parse(text)
		if got != want || (err == nil) != (want != Reference{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// Layers in every compression are unpacked once, by digest.
func TestUse(t *testing.T) {
	m, s := newMaker(t), newStore(t)
	var layers []object
	var diffs []string
	for i, c := range []struct {
		mediaType string
		pack      func(testing.TB, []byte) []byte
	}{{typeLayer, func(_ testing.TB, b []byte) []byte { return b }}, {typeLayer + "+gzip", gzipped},
		{typeLayer + "+zstd", zstandard}, {dockerLayer, gzipped}} {
		archive := files(t, map[string]string{fmt.Sprintf("layer%d", i): "x",
			fmt.Sprintf("etc/.wh.layer%d", i): "", "etc/last": fmt.Sprint(i)})
		layers = append(layers, m.blob(c.mediaType, c.pack(t, archive)))
		diffs = append(diffs, digestOf(archive))
	}
	made := m.image(image{layers: layers, diffs: diffs, config: object{"Env": []string{"A=b"},
		"Cmd": []string{"/bin/x"}, "Entrypoint": []string{"e"}, "WorkingDir": "/w", "User": "root"}})
	made["annotations"] = object{"org.opencontainers.image.ref.name": "one"}
	m.index(made)
	held, err := s.use(t, m.dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"layer0": "x", "layer1": "x", "layer2": "x", "layer3": "x",
		"etc/last": "3"} {
		if text, err := os.ReadFile(filepath.Join(held.Root, name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if held.Digest != made["digest"] || held.Layers != 4 || fmt.Sprint(held.Top) !=
		"[etc layer0 layer1 layer2 layer3]" || fmt.Sprint(held.Config) !=
		"{[A=b] [e] [/bin/x] /w root}" {
		t.Errorf("%+v", held.About)
	}
	// The layers are not read again.
	for _, d := range layers {
		if err := os.Remove(m.path(d["digest"].(string))); err != nil {
			t.Fatal(err)
		}
	}
	again, err := s.use(t, m.dir)
	if err != nil || again.Root != held.Root {
		t.Errorf("again: %+v, %v", again, err)
	}
	for tag, found := range map[string]bool{"one": true, "two": false} {
		h, err := s.Use(t.Context(), self(), Reference{Dir: m.dir, Tag: tag})
		if h.Close(); (err == nil) != found {
			t.Errorf("tag %s: %v", tag, err)
		}
	}
	for _, missing := range []Reference{{Dir: m.dir, Tag: "two"},
		{Dir: m.dir, Digest: "sha256:" + strings.Repeat("0", 64)}} {
		_, err := s.Use(t.Context(), self(), missing)
		if e, ok := errors.AsType[*problem.Error](err); !ok || e.Code != problem.NotFound ||
			!strings.Contains(e.Message, missing.Tag+missing.Digest) {
			t.Errorf("%+v: %v", missing, err)
		}
	}
}

// Of an image for several platforms that of this host is taken.
func TestPlatforms(t *testing.T) {
	m, s := newMaker(t), newStore(t)
	other := m.simple("other")
	other["platform"] = object{"os": "linux", "architecture": "other"}
	own := m.simple("own")
	own["platform"] = object{"os": "linux", "architecture": runtime.GOARCH}
	m.index(m.document(typeIndex, object{"schemaVersion": 2, "manifests": []object{other, own}}))
	held, err := s.use(t, m.dir)
	if err != nil || held.Digest != own["digest"] {
		t.Errorf("%+v, %v", held, err)
	}
}

// T-562, T-563: what is hostile is refused in a sentence, and leaves nothing in the store.
// TestUse is the control.
func TestRefused(t *testing.T) {
	layer := files(t, map[string]string{"bin/x": "x"})
	zeros := make([]byte, 64<<20)
	for name, c := range map[string]struct {
		make func(m maker) object
		want string
	}{
		"another digest": {func(m maker) object {
			d := m.blob(typeLayer, layer)
			other := bytes.Clone(layer)
			other[0]++
			if err := os.WriteFile(m.path(d["digest"].(string)), other, 0o644); err != nil {
				t.Fatal(err)
			}
			return m.image(image{layers: []object{d}, diffs: []string{digestOf(layer)}})
		}, ""},
		"another digest in what follows the archive": {func(m maker) object {
			longer := append(bytes.Clone(layer), make([]byte, 1024)...)
			d := m.blob(typeLayer, longer)
			longer[len(longer)-1] = 1
			if err := os.WriteFile(m.path(d["digest"].(string)), longer, 0o644); err != nil {
				t.Fatal(err)
			}
			return m.image(image{layers: []object{d}, diffs: []string{digestOf(longer)}})
		}, "its content has another digest"},
		"another digest of the archive": {func(m maker) object {
			return m.image(image{layers: []object{m.blob(typeLayer+"+gzip", gzipped(t, layer))},
				diffs: []string{digestOf(nil)}})
		}, "its archive has another digest"},
		"another digest of the manifest": {func(m maker) object {
			d := m.simple("x")
			path := m.path(d["digest"].(string))
			text, _ := os.ReadFile(path)
			if err := os.WriteFile(path, append(text, ' '), 0o644); err != nil {
				t.Fatal(err)
			}
			return d
		}, "its content has another digest"},
		"a size that lies": {func(m maker) object {
			d := m.blob(typeLayer, layer)
			d["size"] = len(layer) - 1
			return m.image(image{layers: []object{d}, diffs: []string{digestOf(layer)}})
		}, "bytes, where"},
		"a size below nothing": {func(m maker) object {
			d := m.blob(typeLayer, layer)
			d["size"] = -1
			return m.image(image{layers: []object{d}, diffs: []string{digestOf(layer)}})
		}, "has -1 bytes"},
		"a manifest's size that lies": {func(m maker) object {
			d := m.simple("x")
			d["size"] = 5
			return d
		}, "where 5 are announced"},
		"a digest that is a path": {func(m maker) object {
			d := m.simple("x")
			d["digest"] = "sha256:../../../../etc/passwd"
			return d
		}, "is no sha256"},
		"another hash": {func(m maker) object {
			d := m.simple("x")
			d["digest"] = "sha512:" + strings.Repeat("a", 128)
			return d
		}, "is no sha256"},
		"a layer from elsewhere": {func(m maker) object {
			d := m.blob(typeLayer, layer)
			d["urls"] = []string{"https://example.com/layer"}
			return m.image(image{layers: []object{d}, diffs: []string{digestOf(layer)}})
		}, "fetched from elsewhere"},
		"a blob that is a link": {func(m maker) object {
			d := m.blob(typeLayer, layer)
			path := m.path(d["digest"].(string))
			if err := errors.Join(os.Rename(path, path+".x"), os.Symlink(path+".x", path)); err != nil {
				t.Fatal(err)
			}
			return m.image(image{layers: []object{d}, diffs: []string{digestOf(layer)}})
		}, "it is a symbolic link"},
		// The other layout is one that the daemon has open of another user.
		"blobs of another layout": {func(m maker) object {
			other := newMaker(t)
			d := other.image(image{layers: []object{other.blob(typeLayer, layer)},
				diffs: []string{digestOf(layer)}})
			open, err := os.Open(other.dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { open.Close() })
			blobs := filepath.Join(m.dir, "blobs")
			if err := errors.Join(os.RemoveAll(blobs),
				os.Symlink(fmt.Sprintf("/proc/self/fd/%d/blobs", open.Fd()), blobs)); err != nil {
				t.Fatal(err)
			}
			return d
		}, "it is a symbolic link"},
		"a blob that is a pipe": {func(m maker) object {
			d := m.blob(typeLayer, layer)
			path := m.path(d["digest"].(string))
			if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644)); err != nil {
				t.Fatal(err)
			}
			return m.image(image{layers: []object{d}, diffs: []string{digestOf(layer)}})
		}, "it is no regular file"},
		"a blob that is missing": {func(m maker) object {
			d := m.blob(typeLayer, layer)
			os.Remove(m.path(d["digest"].(string)))
			return m.image(image{layers: []object{d}, diffs: []string{digestOf(layer)}})
		}, "there is no such file"},
		"a kind of layer that is unknown": {func(m maker) object {
			return m.image(image{layers: []object{m.blob(typeLayer+"+bzip2", layer)},
				diffs: []string{digestOf(layer)}})
		}, "is unknown"},
		"no gzip": {func(m maker) object {
			return m.image(image{layers: []object{m.blob(typeLayer+"+gzip", layer)},
				diffs: []string{digestOf(layer)}})
		}, "cannot be unpacked"},
		"no zstd": {func(m maker) object {
			return m.image(image{layers: []object{m.blob(typeLayer+"+zstd", layer)},
				diffs: []string{digestOf(layer)}})
		}, "cannot be unpacked"},
		"a gzip bomb": {func(m maker) object {
			return m.image(image{layers: []object{m.blob(typeLayer+"+gzip", gzipped(t, zeros))},
				diffs: []string{digestOf(zeros)}})
		}, "image is too large"},
		"a zstd bomb": {func(m maker) object {
			return m.image(image{layers: []object{m.blob(typeLayer+"+zstd", zstandard(t, zeros))},
				diffs: []string{digestOf(zeros)}})
		}, "image is too large"},
		"a bomb in a file": {func(m maker) object {
			archive := files(t, map[string]string{"zeros": string(zeros)})
			return m.image(image{layers: []object{m.blob(typeLayer+"+gzip", gzipped(t, archive))},
				diffs: []string{digestOf(archive)}})
		}, "image is too large"},
		"many layers": {func(m maker) object {
			i := image{}
			for range maxLayers + 1 {
				i.layers, i.diffs = append(i.layers, m.blob(typeLayer, layer)), append(i.diffs,
					digestOf(layer))
			}
			return m.image(i)
		}, "257 layers"},
		"no layers": {func(m maker) object { return m.image(image{}) }, "0 layers"},
		"layers that the configuration does not know": {func(m maker) object {
			return m.image(image{layers: []object{m.blob(typeLayer, layer)}})
		}, "speaks of 0"},
		"another processor": {func(m maker) object {
			return m.image(image{layers: []object{m.blob(typeLayer, layer)},
				diffs: []string{digestOf(layer)}, platform: object{"architecture": "s390x"}})
		}, "linux/s390x"},
		"a large manifest": {func(m maker) object {
			return m.blob(typeManifest, append([]byte(`{"schemaVersion":2,"x":"`),
				bytes.Repeat([]byte("x"), maxDocument)...))
		}, "longer than"},
		"a manifest of many values": {func(m maker) object {
			return m.blob(typeManifest, []byte("["+strings.Repeat("1,", maxValues)+"1]"))
		}, "values"},
		"an index in an index in an index": {func(m maker) object {
			inner := m.document(typeIndex, object{"manifests": []object{m.simple("x")}})
			return m.document(typeIndex, object{"manifests": []object{inner}})
		}, "is no manifest"},
		"a variable that is none": {func(m maker) object {
			return m.image(image{layers: []object{m.blob(typeLayer, layer)},
				diffs: []string{digestOf(layer)}, config: object{"Env": []string{"nothing"}}})
		}, "is not NAME=VALUE"},
		"a zero byte": {func(m maker) object {
			return m.image(image{layers: []object{m.blob(typeLayer, layer)},
				diffs: []string{digestOf(layer)}, config: object{"Cmd": []string{"a\x00b"}}})
		}, "zero byte"},
		"a root of many entries": {func(m maker) object {
			all := map[string]string{}
			for i := range maxTop + 1 {
				all[fmt.Sprint(i)] = ""
			}
			archive := files(t, all)
			return m.image(image{layers: []object{m.blob(typeLayer, archive)},
				diffs: []string{digestOf(archive)}})
		}, "entries"},
	} {
		t.Run(name, func(t *testing.T) {
			m, s := newMaker(t), newStore(t)
			s.bounds.Entries = maxTop * 2
			m.index(c.make(m))
			_, err := s.use(t, m.dir)
			known, ok := errors.AsType[*problem.Error](err)
			if !ok || known.Code != problem.Refused || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			entries, err := os.ReadDir(filepath.Join(s.dir, fmt.Sprint(os.Geteuid())))
			if len(entries) > 0 {
				t.Errorf("the store has %v, %v", entries, err)
			}
		})
	}
}

// T-563, T-564: an image of one user is not another's, even if that one has its manifest and configuration.
func TestUsersShareNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	m, s := newMaker(t), newStore(t)
	d := m.simple("private")
	m.index(d)
	use := func(uid uint32) error {
		h, err := s.Use(t.Context(), asuser.Caller{UID: uid, GID: uid}, Reference{Dir: m.dir})
		if err == nil {
			h.Close()
		}
		return err
	}
	// The directories above are the test's own.
	for dir := m.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := use(70001); err != nil {
		t.Fatal("control:", err)
	}
	blobs, err := filepath.Glob(filepath.Join(m.dir, "blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range blobs {
		if text, _ := os.ReadFile(path); !bytes.HasPrefix(text, []byte("{")) {
			// The layer is for its owner alone.
			if err := errors.Join(os.Chown(path, 70001, 70001), os.Chmod(path, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := use(70001); err != nil {
		t.Error("the first user:", err)
	}
	if err := use(70002); err == nil || !strings.Contains(err.Error(), "you may not read it") {
		t.Errorf("another user: %v", err)
	}
}

// T-562: what is in use stays. The rest makes room for what is new, that which was used longest ago first.
func TestRoom(t *testing.T) {
	s := newStore(t)
	s.userBytes = 150 << 10
	var dirs []string
	var held []*Held
	for i := range 3 {
		m := newMaker(t)
		m.index(m.simple(strings.Repeat(fmt.Sprint(i), 60<<10)))
		dirs = append(dirs, m.dir)
	}
	for i, dir := range dirs[:2] {
		h, err := s.use(t, dir)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(filepath.Join(filepath.Dir(h.Root), "about"), at, at); err != nil {
			t.Fatal(err)
		}
		held = append(held, h)
	}
	if _, err := s.use(t, dirs[2]); err == nil || !strings.Contains(err.Error(), "your runs use") {
		t.Fatalf("with all in use: %v", err)
	}
	held[1].Close()
	if _, err := s.use(t, dirs[2]); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if _, err := os.Stat(held[i].Root); (err == nil) != want {
			t.Errorf("image %d is there: %v, want %v", i, err == nil, want)
		}
	}
}

func TestNames(t *testing.T) {
	m, s := newMaker(t), newStore(t)
	made := m.simple("x")
	m.index(made)
	record := func(About) error { return nil }
	check := func(*About) error { return nil }
	offer := ImageOffer{Layout: "oci:" + m.dir, Source: "here"}
	if _, err := s.Add(t.Context(), self(), "../x", offer, check); err == nil {
		t.Error("a name with a slash is taken")
	}
	refused := errors.New("no record")
	fails := func(*About) error { return refused }
	if _, err := s.Add(t.Context(), self(), "small", offer, fails); !errors.Is(err, refused) {
		t.Errorf("without a record: %v", err)
	}
	if _, err := s.Use(t.Context(), self(), Reference{Name: "small"}); err == nil {
		t.Error("an image without a record is there")
	}
	if _, err := s.Add(t.Context(), self(), "small", offer, check); err != nil {
		t.Fatal(err)
	}
	held, err := s.Use(t.Context(), self(), Reference{Name: "small"})
	if err != nil {
		t.Fatal(err)
	}
	if held.Digest != made["digest"] || held.Name != "small" {
		t.Errorf("%+v", held.About)
	}
	all, err := s.List("1")
	if err != nil || len(all) != 1 || all[0].Name != "small" || all[0].Source != "here" {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := s.Remove("other", record); err == nil {
		t.Error("a name that is none is removed")
	}
	// The run that has it goes on.
	if _, err := s.Remove("small", record); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(held.Root); err != nil {
		t.Error(err)
	}
	if _, err := s.Use(context.Background(), self(), Reference{Name: "small"}); err == nil {
		t.Error("an image that was removed is there")
	}
	held.Close()
	if _, err := Open(s.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(held.Root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was removed is there after a restart: %v", err)
	}
}

// What an earlier daemon has left half done goes away; what another one works on stays.
func TestSweep(t *testing.T) {
	s := newStore(t)
	left, busy := filepath.Join(s.dir, "7", unplaced+"1"), filepath.Join(s.dir, "7", unplaced+"2")
	for _, dir := range []string{left, busy} {
		if err := os.MkdirAll(filepath.Join(dir, "root"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	held, err := flock.Dir(busy, syscall.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := Open(s.dir); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{left: false, busy: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", dir, err == nil, want)
		}
	}
}
