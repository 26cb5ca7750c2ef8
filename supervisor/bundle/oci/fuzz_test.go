package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/jail-sandbox/jail/supervisor/bundle"
)

// texts is a source that has what it was given, each by its digest.
type texts struct {
	root specs.Descriptor
	all  map[digest.Digest][]byte
}

func (s *texts) Resolve(context.Context, string) (specs.Descriptor, error) { return s.root, nil }

func (s *texts) Fetch(_ context.Context, d specs.Descriptor) (io.ReadCloser, error) {
	text, ok := s.all[d.Digest]
	if !ok {
		return nil, ErrArtifact
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

func (s *texts) add(mediaType string, text []byte) string {
	d := descriptor(mediaType, text)
	s.all[d.Digest] = text
	s.root = d
	shown, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return string(shown)
}

// T-611: whatever the documents of an artifact say, what is taken of it is the files that its one
// bundle.json names, by their digests and sizes, and nothing else. In the texts, @manifest,
// @modules, @about and @config stand for the descriptors of the others, so that what is changed is
// still found.
func FuzzArtifact(f *testing.F) {
	const (
		sum    = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
		module = `{"mediaType":"application/wasm","digest":"sha256:` + sum + `","size":8}`
		index  = `{"schemaVersion":2,"artifactType":"` + typeBundle +
			`","manifests":[@modules,@about]}`
		modules = `{"schemaVersion":2,"config":@config,"layers":[` + module + `]}`
		about   = `{"schemaVersion":2,"artifactType":"` + typeAbout +
			`","config":@config,"layers":[@manifest]}`
	)
	said, err := json.Marshal(bundle.Manifest{
		Format: bundle.Format, Name: "words", Version: "1.0.0", About: "Words.",
		Licences:  []bundle.Licence{},
		BuiltFrom: []bundle.Source{},
		Modules: []bundle.ModuleEntry{{File: "w.wasm", SHA256: sum, Size: 8, Layout: "preopens",
			Imports: []string{}}},
		Commands: []bundle.CommandEntry{{Name: "words", Module: "w.wasm", About: "Counts words."}},
		Limits:   bundle.Limits{MemoryBytes: 1 << 20, WallMS: 1000},
		Needs:    &bundle.Needs{Hosts: []string{}, Mounts: []string{}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(index, modules, about, string(said))
	f.Add(index, modules, strings.Replace(about, "@manifest", "@manifest,"+module, 1), string(said))
	f.Add(strings.Replace(index, "@modules,@about", "@about,@about", 1), modules, about,
		string(said))
	f.Add(index, strings.Replace(modules, `"layers"`, `"layers":[],"layers"`, 1), about,
		`{"format":1,"format":1}`)
	read := func(ctx context.Context, index, modules, about, said string) (*artifact, error) {
		s := &texts{all: map[digest.Digest][]byte{}}
		config := s.add(typeConfig, []byte("{}"))
		manifest := s.add(typeManifest, []byte(said))
		put := strings.NewReplacer("@config", config, "@manifest", manifest)
		m := s.add(specs.MediaTypeImageManifest, []byte(put.Replace(modules)))
		a := s.add(specs.MediaTypeImageManifest, []byte(put.Replace(about)))
		s.add(specs.MediaTypeImageIndex,
			[]byte(strings.NewReplacer("@modules", m, "@about", a).Replace(index)))
		got := &artifact{root: s.root}
		return got, got.read(ctx, s)
	}
	if _, err := read(f.Context(), index, modules, about, string(said)); err != nil {
		f.Fatalf("a sound one: %v", err)
	}
	f.Fuzz(func(t *testing.T, index, modules, about, said string) {
		got, err := read(t.Context(), index, modules, about, said)
		if err != nil {
			if !errors.Is(err, ErrArtifact) {
				t.Fatalf("%v is no ErrArtifact", err)
			}
			return
		}
		files := got.manifest.Files()
		if len(got.files) != len(files) || !bytes.Equal(got.text, []byte(said)) {
			t.Fatalf("%d files are taken of %d, by the manifest %q", len(got.files), len(files),
				got.text)
		}
		for i, file := range files {
			if d := got.files[i]; d.Digest.String() != "sha256:"+file.SHA256 ||
				d.Size != file.Size {
				t.Fatalf("%s is taken from %s of %d bytes", file.Name, d.Digest, d.Size)
			}
		}
		if !slices.ContainsFunc(got.documents,
			func(d document) bool { return string(d.content) == said }) {
			t.Fatal("the manifest is not among what is kept")
		}
	})
}
