package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"

	"github.com/jail-sandbox/jail/supervisor/bundle"
)

// A bundle goes to a registry, through a directory that a stock tool copied it to, and arrives as
// it was.
func TestPushAndPull(t *testing.T) {
	h := newRegistry(t)
	b := words(t)
	pinned := h.push(b)
	if again := h.push(b); again != pinned {
		t.Errorf("the same bundle is %s, and was %s", again, pinned)
	}
	want := slices.Concat(moduleBytes, []byte("\x00asm\x01\x00\x00\x00more"), []byte("free"))
	dir := filepath.Join(t.TempDir(), "layout")
	var seen []byte
	var done, total int64
	c := newClient()
	c.Progress = func(d, n int64) { done, total = d, n }
	p, err := c.Pull(t.Context(), h.ref(pinned), dir, func(manifest []byte,
		_ string) error {
		seen = manifest
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(seen) != b.Text || p.Signed != b.Signed || p.Digest != pinned ||
		!bytes.Equal(readAll(t, p), want) {
		t.Errorf("another bundle arrived: %+v", p.Bundle)
	}
	if done != total || total != int64(len(want)) {
		t.Errorf("progress ended at %d of %d, want %d", done, total, len(want))
	}
	// oras copies what was pulled to another directory, and from there it is pulled without a
	// network.
	from, err := oci.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copied")
	to, err := oci.New(copied)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := oras.Copy(t.Context(), from, "latest", to, "v1",
		oras.DefaultCopyOptions); err != nil {
		t.Fatal(err)
	}
	h.server.Close()
	for _, text := range []string{copied, copied + ":v1", copied + "@" + pinned} {
		ref, err := ParseReference(layoutPrefix + text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Pull(t.Context(), ref, copied, yes)
		if err != nil || !bytes.Equal(readAll(t, p), want) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	// The modules are an artifact of the CNCF's layout.
	var index specs.Index
	var m specs.Manifest
	read := func(d digest.Digest, v any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(copied, "blobs/sha256", d.Encoded()))
		if err != nil || json.Unmarshal(text, v) != nil {
			t.Fatalf("%s: %v", d, err)
		}
	}
	read(digest.Digest(pinned), &index)
	read(index.Manifests[0].Digest, &m)
	if m.Config.MediaType != "application/vnd.wasm.config.v0+json" || len(m.Layers) != 2 ||
		m.Layers[0].MediaType != "application/wasm" {
		t.Errorf("modules: %+v", m)
	}
}

// What is refused is refused before a file is fetched.
func TestRefusedBeforeFilesAreFetched(t *testing.T) {
	h := newRegistry(t)
	pinned := h.push(words(t))
	no := errors.New("no")
	h.be(nil)
	if _, err := newClient().Pull(t.Context(), h.ref(pinned), t.TempDir(),
		func([]byte, string) error { return no }); !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	if n := h.askedFor(hexSum(moduleBytes)); n != 0 {
		t.Errorf("the module was asked for %d times", n)
	}
}

// T-603, T-604: registries that lie. Each is held against the same pull of the good registry.
func TestHostileRegistries(t *testing.T) {
	h := newRegistry(t)
	pinned := h.push(words(t))
	module := "sha256:" + hexSum(moduleBytes)
	blob := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/blobs/"+module) }
	manifest := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") }
	endless := func(w http.ResponseWriter) {
		part := bytes.Repeat([]byte("x"), 64<<10)
		// 1 GiB, of which nobody takes more than a little
		for range 16 << 10 {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.Write(moduleBytes)
	}))
	defer elsewhere.Close()
	// What answers on this host behind another name is not where a registry may send its client.
	for name, c := range map[string]struct {
		wrong func(w http.ResponseWriter, r *http.Request) bool
		want  error
	}{
		"another blob": {func(w http.ResponseWriter, r *http.Request) bool {
			if !blob(r) {
				return false
			}
			w.Write(bytes.ToUpper(moduleBytes))
			return true
		}, ErrArtifact},
		"a blob cut off": {func(w http.ResponseWriter, r *http.Request) bool {
			if !blob(r) {
				return false
			}
			w.Write(moduleBytes[:100])
			return true
		}, nil},
		"an endless blob": {func(w http.ResponseWriter, r *http.Request) bool {
			if !blob(r) {
				return false
			}
			endless(w)
			return true
		}, ErrArtifact},
		"an endless manifest": {func(w http.ResponseWriter, r *http.Request) bool {
			if !manifest(r) {
				return false
			}
			w.Header().Set("Content-Type", specs.MediaTypeImageIndex)
			w.Header().Set("Docker-Content-Digest", pinned)
			endless(w)
			return true
		}, nil},
		"another manifest": {func(w http.ResponseWriter, r *http.Request) bool {
			if !manifest(r) {
				return false
			}
			w.Header().Set("Content-Type", specs.MediaTypeImageIndex)
			w.Header().Set("Docker-Content-Digest", pinned)
			io.WriteString(w,
				`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`)
			return true
		}, nil},
		"a blob elsewhere on this host": {func(w http.ResponseWriter, r *http.Request) bool {
			if !blob(r) {
				return false
			}
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			return true
		}, ErrElsewhere},
		"a blob at the metadata service": {func(w http.ResponseWriter, r *http.Request) bool {
			if !blob(r) {
				return false
			}
			http.Redirect(w, r, "https://169.254.169.254/latest/meta-data/",
				http.StatusTemporaryRedirect)
			return true
		}, ErrElsewhere},
		"a blob behind a name of this host": {func(w http.ResponseWriter, r *http.Request) bool {
			if !blob(r) {
				return false
			}
			http.Redirect(w, r, "https://localhost:1/", http.StatusTemporaryRedirect)
			return true
		}, ErrElsewhere},
		"a blob in a file": {func(w http.ResponseWriter, r *http.Request) bool {
			if !blob(r) {
				return false
			}
			http.Redirect(w, r, "file:///etc/passwd", http.StatusTemporaryRedirect)
			return true
		}, nil},
		"a loop": {func(w http.ResponseWriter, r *http.Request) bool {
			if !blob(r) {
				return false
			}
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}, ErrElsewhere},
		"500": {func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}, nil},
		"401 without end": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+elsewhere.URL+`",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h.be(c.wrong)
			dir := t.TempDir()
			_, err := newClient().Pull(t.Context(), h.ref(pinned), dir, yes)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "blobs/sha256",
				hexSum(moduleBytes))); err == nil {
				t.Error("the module is there")
			}
			h.be(nil)
			if _, err := newClient().Pull(t.Context(), h.ref(pinned), dir, yes); err != nil {
				t.Errorf("control: %v", err)
			}
		})
	}
}

// A pull goes on where it was cut off; one whose rest does not fit begins anew.
func TestPullGoesOn(t *testing.T) {
	h := newRegistry(t)
	pinned := h.push(words(t))
	module := "/blobs/sha256:" + hexSum(moduleBytes)
	half := len(moduleBytes) / 2
	var ranges []string
	h.be(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != "GET" || !strings.HasSuffix(r.URL.Path, module) {
			return false
		}
		ranges = append(ranges, r.Header.Get("Range"))
		if len(ranges) == 1 {
			w.Header().Set("Content-Length", "300008")
			w.Write(moduleBytes[:half])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(moduleBytes))
		return true
	})
	dir := t.TempDir()
	if _, err := newClient().Pull(t.Context(), h.ref(pinned), dir, yes); err == nil {
		t.Fatal("a pull that was cut off is a whole one")
	}
	p, err := newClient().Pull(t.Context(), h.ref(pinned), dir, yes)
	if err != nil || !bytes.HasPrefix(readAll(t, p), moduleBytes) {
		t.Fatal(err)
	}
	if last := ranges[len(ranges)-1]; !strings.HasPrefix(last, "bytes=") || last == "bytes=0-" {
		t.Errorf("it asked for %q", ranges)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "partial-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// A partial file that somebody else wrote.
	dir = t.TempDir()
	partial := filepath.Join(dir, "partial-"+hexSum(moduleBytes))
	if err := os.WriteFile(partial, bytes.Repeat([]byte("y"), half), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newClient().Pull(t.Context(), h.ref(pinned), dir, yes); !errors.Is(err,
		ErrArtifact) {
		t.Errorf("with another beginning: %v", err)
	}
	if _, err := newClient().Pull(t.Context(), h.ref(pinned), dir, yes); err != nil {
		t.Errorf("and once more: %v", err)
	}
	dir = t.TempDir()
	if err := os.Symlink("/etc/passwd",
		filepath.Join(dir, "partial-"+hexSum(moduleBytes))); err != nil {
		t.Fatal(err)
	}
	if _, err := newClient().Pull(t.Context(), h.ref(pinned), dir, yes); !errors.Is(err,
		syscall.ELOOP) {
		t.Errorf("with a link in its place: %v", err)
	}
}

// A registry that stops sending does not hold up anybody for good.
func TestStalledRegistry(t *testing.T) {
	h := newRegistry(t)
	pinned := h.push(words(t))
	over := make(chan struct{})
	defer close(over)
	h.be(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, hexSum(moduleBytes)) {
			return false
		}
		w.Header().Set("Content-Length", "300008")
		w.Write(moduleBytes[:1000])
		w.(http.Flusher).Flush()
		select {
		case <-over:
		case <-r.Context().Done():
		}
		return true
	})
	c := newClient()
	c.Stall = time.Second
	if _, err := c.Pull(t.Context(), h.ref(pinned), t.TempDir(), yes); !errors.Is(err, errStalled) {
		t.Errorf("%v", err)
	}
}

// A digest is a digest, wherever a tag has moved to. T-606: titles are for other tools.
func TestTagsAndTitles(t *testing.T) {
	h := newRegistry(t)
	pinned := h.push(words(t))
	moved := specs.Index{MediaType: specs.MediaTypeImageIndex, ArtifactType: typeBundle}
	moved.SchemaVersion = 2
	h.put("1.2.0", specs.MediaTypeImageIndex, moved)
	ref := h.ref(pinned)
	ref.Tag = "1.2.0"
	if _, err := newClient().Pull(t.Context(), ref, t.TempDir(), yes); err != nil {
		t.Errorf("by its digest: %v", err)
	}
	ref.Digest = ""
	if _, err := newClient().Pull(t.Context(), ref, t.TempDir(), yes); !errors.Is(err,
		ErrArtifact) {
		t.Errorf("by a tag that was moved: %v", err)
	}
	// The same artifact, whose titles would lead out of a directory that they are unpacked to.
	b := words(t)
	f, err := pack(b)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	store, err := oci.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	slip := func(v any, text []byte) []byte {
		t.Helper()
		return bytes.ReplaceAll(text, []byte(`"words.wasm"`),
			[]byte(`"../../../../../../tmp/words-slipped.wasm"`))
	}
	var index specs.Index
	if err := json.Unmarshal(f.texts[f.root.Digest], &index); err != nil {
		t.Fatal(err)
	}
	slipped := slip(nil, f.texts[index.Manifests[0].Digest])
	d := f.add(specs.MediaTypeImageManifest, slipped)
	d.Platform = index.Manifests[0].Platform
	index.Manifests[0] = d
	if f.root, err = f.addJSON(specs.MediaTypeImageIndex, index); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(oras.CopyGraph(t.Context(), f, store, f.root,
		oras.DefaultCopyGraphOptions), store.Tag(t.Context(), f.root, "latest")); err != nil {
		t.Fatal(err)
	}
	p, err := newClient().Pull(t.Context(), Reference{Layout: dir},
		filepath.Join(t.TempDir(), "out"), yes)
	if err != nil || !bytes.HasPrefix(readAll(t, p), moduleBytes) {
		t.Errorf("titles: %v", err)
	}
	if _, err := os.Lstat("/tmp/words-slipped.wasm"); err == nil {
		t.Error("a title was taken for a path")
	}
}

// T-607: what an index or a manifest could make a client fetch is bounded.
func TestBombs(t *testing.T) {
	b := words(t)
	h := newRegistry(t)
	pinned := h.push(b)
	good, err := pack(b)
	if err != nil {
		t.Fatal(err)
	}
	var index specs.Index
	if err := json.Unmarshal(good.texts[good.root.Digest], &index); err != nil {
		t.Fatal(err)
	}
	var modules, about specs.Manifest
	if err := errors.Join(json.Unmarshal(good.texts[index.Manifests[0].Digest], &modules),
		json.Unmarshal(good.texts[index.Manifests[1].Digest], &about)); err != nil {
		t.Fatal(err)
	}
	publish := func(modules, about specs.Manifest, change func(*specs.Index)) Reference {
		ix := index
		ix.Manifests = slices.Clone(index.Manifests)
		for i, m := range []specs.Manifest{modules, about} {
			d, n := h.put("", specs.MediaTypeImageManifest, m)
			ix.Manifests[i].Digest, ix.Manifests[i].Size = digest.Digest(d), n
		}
		change(&ix)
		d, _ := h.put("", specs.MediaTypeImageIndex, ix)
		return h.ref(d)
	}
	same := func(*specs.Index) {}
	if _, err := newClient().Pull(t.Context(), publish(modules, about, same), t.TempDir(),
		yes); err != nil {
		t.Fatalf("control: %v", err)
	}
	with := func(m specs.Manifest, layers ...specs.Descriptor) specs.Manifest {
		m.Layers = append(slices.Clone(m.Layers), layers...)
		return m
	}
	first := func(m specs.Manifest, f func(*specs.Descriptor)) specs.Manifest {
		m.Layers = slices.Clone(m.Layers)
		f(&m.Layers[0])
		return m
	}
	extra := specs.Descriptor{MediaType: typeModule, Digest: digest.FromString("extra"), Size: 5}
	for name, ref := range map[string]Reference{
		"a layer more": publish(with(modules, extra), about, same),
		"a file more": publish(modules,
			with(about, specs.Descriptor{MediaType: typeLicence, Digest: digest.FromString("extra"),
				Size: 5}), same),
		"many layers": publish(with(modules,
			slices.Repeat([]specs.Descriptor{extra}, maxLayers)...), about, same),
		"a layer less": publish(first(modules,
			func(d *specs.Descriptor) { *d = modules.Layers[1] }), about, same),
		"another size": publish(first(modules, func(d *specs.Descriptor) { d.Size++ }), about,
			same),
		"a manifest of 1 TiB": publish(modules,
			first(about, func(d *specs.Descriptor) { d.Size = 1 << 40 }), same),
		"a manifest of another digest": publish(modules,
			first(about,
				func(d *specs.Descriptor) {
					d.Digest = modules.Layers[1].Digest
					d.Size = modules.Layers[1].Size
				}), same),
		"sha512": publish(modules,
			first(about, func(d *specs.Descriptor) { d.Digest = digest.SHA512.FromString("x") }),
			same),
		"urls": publish(modules,
			first(about, func(d *specs.Descriptor) { d.URLs = []string{"https://example.com/"} }),
			same),
		"no manifests": publish(modules, about, func(ix *specs.Index) { ix.Manifests = nil }),
		"many manifests": publish(modules, about,
			func(ix *specs.Index) { ix.Manifests = slices.Repeat(ix.Manifests, 200) }),
		"the modules twice": publish(modules, about,
			func(ix *specs.Index) { ix.Manifests[1] = ix.Manifests[0] }),
		"an index in an index": publish(modules, about, func(ix *specs.Index) {
			ix.Manifests[0] = specs.Descriptor{MediaType: specs.MediaTypeImageIndex,
				Digest: digest.Digest(pinned), Size: good.root.Size}
		}),
		"another type": publish(modules, about,
			func(ix *specs.Index) { ix.ArtifactType = "application/x" }),
	} {
		h.be(nil)
		if _, err := newClient().Pull(t.Context(), ref, t.TempDir(), yes); !errors.Is(err,
			ErrArtifact) {
			t.Errorf("%s: %v", name, err)
		}
		if n := h.askedFor(hexSum(moduleBytes)); n > 0 {
			t.Errorf("%s: its module was fetched", name)
		}
	}
	// A huge index, which the registry announces as what it is.
	big := index
	big.Annotations = map[string]string{"x": strings.Repeat("x", maxDocument)}
	d, _ := h.put("", specs.MediaTypeImageIndex, big)
	if _, err := newClient().Pull(t.Context(), h.ref(d), t.TempDir(), yes); err == nil {
		t.Error("an index of more than 1 MiB was read")
	}
}

// T-610: a directory in the OCI image layout is untrusted: links, pipes and unexpected content in
// it are refused.
func TestHostileLayout(t *testing.T) {
	make := func() (string, string) {
		dir := filepath.Join(t.TempDir(), "layout")
		if _, err := newClient().Push(t.Context(), words(t), Reference{Layout: dir}); err != nil {
			t.Fatal(err)
		}
		return dir, filepath.Join(dir, "blobs/sha256", hexSum(moduleBytes))
	}
	pull := func(dir string) error {
		p, err := newClient().Pull(t.Context(), Reference{Layout: dir, Tag: "1.2.0"}, dir, yes)
		if err != nil {
			return err
		}
		r := p.Files(t.Context())
		defer r.Close()
		_, err = io.Copy(io.Discard, r)
		return err
	}
	if dir, _ := make(); pull(dir) != nil {
		t.Fatalf("control: %v", pull(dir))
	}
	for name, spoil := range map[string]func(dir, module string) error{
		"a link to a device": func(_, m string) error {
			return errors.Join(os.Remove(m), os.Symlink("/dev/zero", m))
		},
		"a pipe": func(_, m string) error {
			return errors.Join(os.Remove(m), syscall.Mkfifo(m, 0o600))
		},
		"a directory": func(_, m string) error {
			return errors.Join(os.Remove(m), os.Mkdir(m, 0o700))
		},
		"cut off": func(_, m string) error {
			return errors.Join(os.Chmod(m, 0o600), os.Truncate(m, 10))
		},
		"swapped": func(_, m string) error {
			return os.WriteFile(m+"x", bytes.ToUpper(moduleBytes), 0o600)
		},
		"nothing": func(dir, _ string) error { return os.RemoveAll(dir) },
		"an index that is no": func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "index.json"), []byte("[]"), 0o600)
		},
		"a huge index": func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "index.json"),
				bytes.Repeat([]byte(" "), maxDocument+1), 0o600)
		},
	} {
		dir, module := make()
		if err := spoil(dir, module); err != nil {
			t.Fatal(err)
		}
		if name == "swapped" {
			if err := os.Rename(module+"x", module); err != nil {
				t.Fatal(err)
			}
		}
		if err := pull(dir); err == nil {
			t.Errorf("%s: pulled", name)
		}
	}
}

func TestReferences(t *testing.T) {
	sum := "sha256:" + strings.Repeat("a", 64)
	for text, want := range map[string]Reference{
		"ghcr.io/acme/words:1.2.0":  {Registry: "ghcr.io", Repository: "acme/words", Tag: "1.2.0"},
		"ghcr.io/acme/words@" + sum: {Registry: "ghcr.io", Repository: "acme/words", Digest: sum},
		"localhost:5000/words:1@" + sum: {Registry: "localhost:5000", Repository: "words",
			Tag: "1", Digest: sum},
		"oci-layout:/a/b":           {Layout: "/a/b"},
		"oci-layout:/a/b:v1@" + sum: {Layout: "/a/b", Tag: "v1", Digest: sum},
		"oci-layout:../x:1/y":       {Layout: "../x:1/y"},
		"registry.example:443/a/b/c-d_e.f/gh": {Registry: "registry.example:443",
			Repository: "a/b/c-d_e.f/gh"},
	} {
		if got, err := ParseReference(text); err != nil || got != want || text != got.String() &&
			!strings.Contains(text, "..") {
			t.Errorf("%s: %+v (%s), %v", text, got, got, err)
		}
	}
	for _, text := range []string{"", "words", "/words", "ghcr.io/", "ghcr.io/../x", "ghcr.io/A",
		"ghcr.io/a:", "ghcr.io/a@sha256:" + strings.Repeat("a", 63), "ghcr.io/a@md5:aa",
		"ghcr.io/a@" + strings.ToUpper(sum), "oci-layout:", "oci-layout:x:..%2f", "ghcr.io/a b",
		"https://ghcr.io/a", "ghcr.io/a:b:c", "user@ghcr.io/a", "ghcr.io/a\n"} {
		if got, err := ParseReference(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	ref := Reference{Registry: "ghcr.io", Repository: "jail/bundles/words"}
	for prefix, want := range map[string]bool{"ghcr.io/jail/bundles": true,
		"ghcr.io/jail/bundles/": true, "ghcr.io/jail/bund": false, "ghcr.io": true, "ghcr.i": false,
		"": false} {
		if prefix != "" && ref.Below([]string{prefix}) != want {
			t.Errorf("below %q: %v", prefix, !want)
		}
	}
	if _, err := (&Client{PlainHTTP: true}).Pull(t.Context(), ref, t.TempDir(), yes); err == nil {
		t.Error("a registry elsewhere was asked without TLS")
	}
}

// What nobody could install is not pushed.
func TestPushWantsASignature(t *testing.T) {
	b := words(t)
	dir := t.TempDir()
	unsigned := *b
	unsigned.Signed = ""
	if _, err := newClient().Push(t.Context(), &unsigned, Reference{Layout: dir}); err == nil {
		t.Error("an unsigned bundle was pushed")
	}
	if err := os.WriteFile(filepath.Join(b.Dir, "words.wasm"), []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := newClient().Push(t.Context(), b, Reference{Layout: dir}); !errors.Is(err,
		bundle.ErrAltered) {
		t.Errorf("an altered bundle: %v", err)
	}
}
