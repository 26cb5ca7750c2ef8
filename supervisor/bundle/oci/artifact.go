package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/jsonbound"
)

// Media types.
const (
	typeBundle    = "application/vnd.jail.bundle.v1"
	typeAbout     = "application/vnd.jail.bundle.about.v1"
	typeManifest  = "application/vnd.jail.bundle.manifest.v1+json"
	typeSignature = "application/vnd.jail.bundle.signature.v1"
	typeLicence   = "text/plain"
	typeConfig    = "application/vnd.wasm.config.v0+json"
	typeModule    = "application/wasm"
)

// Limits on data that is read before anything is verified.
const (
	// Bytes of an index, a manifest, a config or bundle.json.
	maxDocument = 1 << 20
	maxText     = 64 << 10 // bytes of bundle.sig
	maxLayers   = 400      // of both manifests together
	// JSON values of an index, a manifest or a config
	maxValues = 32 << 10
)

// ErrArtifact is wrapped by errors about artifacts that are malformed or no bundles, and about
// incomplete directories in the OCI image layout.
var ErrArtifact = errors.New("not a bundle or image that can be taken")

// A source is a registry or directory that artifacts are read from.
type source interface {
	Resolve(ctx context.Context, reference string) (specs.Descriptor, error)
	Fetch(ctx context.Context, target specs.Descriptor) (io.ReadCloser, error)
}

// An artifact is a bundle in a source, of which all documents were read, but no files.
type artifact struct {
	root specs.Descriptor
	// index, manifests, configs and texts
	documents []document
	manifest  bundle.Manifest
	text      []byte // bundle.json
	signed    string // bundle.sig
	files     []specs.Descriptor
}

type document struct {
	desc    specs.Descriptor
	content []byte
}

// readArtifact reads the documents of an artifact, and checks their sizes and consistency. It does
// not verify the signature.
func readArtifact(ctx context.Context, s source, ref Reference) (*artifact, error) {
	a, err := resolve(ctx, s, ref)
	if err == nil {
		err = a.read(ctx, s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	return a, nil
}

func resolve(ctx context.Context, s source, ref Reference) (*artifact, error) {
	root, err := s.Resolve(ctx, ref.name())
	if err == nil && ref.Digest != "" && root.Digest.String() != ref.Digest {
		err = fmt.Errorf("%w: it is %s", ErrArtifact, root.Digest)
	}
	return &artifact{root: root}, err
}

func (a *artifact) read(ctx context.Context, s source) error {
	var index specs.Index
	if a.root.MediaType != specs.MediaTypeImageIndex {
		return fmt.Errorf("%w: it is %.100q, where an index is wanted", ErrArtifact,
			a.root.MediaType)
	}
	if err := a.document(ctx, s, a.root, &index); err != nil {
		return err
	}
	if index.ArtifactType != typeBundle || len(index.Manifests) != 2 {
		return fmt.Errorf(
			"%w: an index of type %.100q with %d manifests, where %s with 2 is wanted", ErrArtifact,
			index.ArtifactType, len(index.Manifests), typeBundle)
	}
	var modules, about *specs.Manifest
	for _, desc := range index.Manifests {
		// An index in an index, say.
		if desc.MediaType != specs.MediaTypeImageManifest {
			return fmt.Errorf("%w: %.100q in its index", ErrArtifact, desc.MediaType)
		}
		m := &specs.Manifest{}
		if err := a.document(ctx, s, desc, m); err != nil {
			return err
		}
		switch {
		case m.ArtifactType == typeAbout && about == nil:
			about = m
		case m.Config.MediaType == typeConfig && modules == nil:
			modules = m
		}
		var config any
		if err := a.document(ctx, s, m.Config, &config); err != nil {
			return err
		}
	}
	if modules == nil || about == nil {
		return fmt.Errorf("%w: one manifest of modules and one of type %s are wanted", ErrArtifact,
			typeAbout)
	}
	return a.layers(ctx, s, modules.Layers, about.Layers)
}

// layers checks that the layers of both manifests are exactly the files that bundle.json names.
func (a *artifact) layers(ctx context.Context, s source, modules, about []specs.Descriptor) error {
	if n := len(modules) + len(about); n > maxLayers {
		return fmt.Errorf("%w: %d layers, where %d are allowed", ErrArtifact, n, maxLayers)
	}
	rest := slices.Clone(modules)
	for _, l := range about {
		var err error
		switch {
		case l.MediaType == typeManifest && a.text == nil:
			a.text, err = a.blob(ctx, s, l, maxDocument)
		case l.MediaType == typeSignature && a.signed == "":
			var text []byte
			text, err = a.blob(ctx, s, l, maxText)
			a.signed = string(text)
		default:
			rest = append(rest, l)
		}
		if err != nil {
			return err
		}
	}
	if a.text == nil {
		return fmt.Errorf("%w: it has no layer %s", ErrArtifact, typeManifest)
	}
	var err error
	if a.manifest, err = bundle.Parse(a.text); err == nil {
		err = a.manifest.Portable()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrArtifact, err)
	}
	for _, f := range a.manifest.Files() {
		i := slices.IndexFunc(rest, func(l specs.Descriptor) bool {
			return l.Digest.String() == "sha256:"+f.SHA256 && l.Size == f.Size &&
				(l.MediaType == typeModule) == f.Module
		})
		if i < 0 {
			return fmt.Errorf("%w: file %s of its manifest is no layer of it", ErrArtifact, f.Name)
		}
		a.files = append(a.files, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: layer %s is no file of its manifest", ErrArtifact, rest[0].Digest)
	}
	return nil
}

// document decodes a JSON document of the artifact into v.
func (a *artifact) document(ctx context.Context, s source, desc specs.Descriptor, v any) error {
	text, err := a.blob(ctx, s, desc, maxDocument)
	if err != nil {
		return err
	}
	if err := jsonbound.Check(text, maxValues); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrArtifact, desc.Digest, err)
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(v); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrArtifact, desc.Digest, err)
	}
	return nil
}

// blob reads content of at most limit bytes, checks its digest and size, and adds it to documents.
func (a *artifact) blob(ctx context.Context, s source, desc specs.Descriptor, limit int64) ([]byte,
	error) {
	if trust.CheckDigest(desc.Digest.String()) != nil || desc.Size < 0 || desc.Size > limit {
		return nil, fmt.Errorf("%w: %.100q of %d bytes, where %d are allowed", ErrArtifact,
			desc.Digest, desc.Size, limit)
	}
	if len(desc.URLs) > 0 {
		return nil, fmt.Errorf("%w: %s is to be fetched from elsewhere", ErrArtifact, desc.Digest)
	}
	r, err := s.Fetch(ctx, desc)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := content.ReadAll(r, desc)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrArtifact, desc.Digest, err)
	}
	a.documents = append(a.documents, document{desc, text})
	return text, nil
}

func descriptor(mediaType string, text []byte) specs.Descriptor {
	return specs.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text),
		Size: int64(len(text))}
}
