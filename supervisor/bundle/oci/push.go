package oci

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"

	"github.com/jail-sandbox/jail/supervisor/bundle"
)

// wasmConfig is the config of the CNCF Wasm layout for a core module.
type wasmConfig struct {
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	LayerDigests []digest.Digest `json:"layerDigests"`
}

// folder is a content store of a bundle's folder: documents are in memory, files stay on the disk.
type folder struct {
	root  specs.Descriptor
	texts map[digest.Digest][]byte
	files map[digest.Digest]string
}

func (f *folder) Exists(_ context.Context, d specs.Descriptor) (bool, error) {
	return f.texts[d.Digest] != nil || f.files[d.Digest] != "", nil
}

func (f *folder) Fetch(_ context.Context, d specs.Descriptor) (io.ReadCloser, error) {
	if text := f.texts[d.Digest]; text != nil {
		return io.NopCloser(bytes.NewReader(text)), nil
	}
	return os.OpenFile(f.files[d.Digest], os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

func (f *folder) add(mediaType string, text []byte) specs.Descriptor {
	d := descriptor(mediaType, text)
	f.texts[d.Digest] = text
	return d
}

func (f *folder) addJSON(mediaType string, v any) (specs.Descriptor, error) {
	text, err := json.Marshal(v)
	return f.add(mediaType, text), err
}

// pack makes an artifact of a signed bundle. It is reproducible: it holds no time and no user name.
func pack(b *bundle.Bundle) (*folder, error) {
	if err := errors.Join(b.Portable(), b.Verify()); err != nil {
		return nil, err
	}
	if b.Signed == "" {
		return nil, fmt.Errorf("bundle %s: %w: jail tool sign", b.Name, ErrUnsigned)
	}
	f := &folder{texts: map[digest.Digest][]byte{}, files: map[digest.Digest]string{}}
	config := wasmConfig{Architecture: "wasm", OS: "wasip1"}
	var modules, about []specs.Descriptor
	about = append(about, named(f.add(typeManifest, []byte(b.Text)), bundle.ManifestFile),
		named(f.add(typeSignature, []byte(b.Signed)), bundle.SignatureFile))
	for _, file := range b.Files() {
		d := specs.Descriptor{MediaType: typeLicence, Digest: digest.Digest("sha256:" +
			file.SHA256), Size: file.Size}
		f.files[d.Digest] = filepath.Join(b.Dir, file.Name)
		if !file.Module {
			about = append(about, named(d, file.Name))
			continue
		}
		d.MediaType = typeModule
		config.LayerDigests = append(config.LayerDigests, d.Digest)
		modules = append(modules, named(d, file.Name))
	}
	configDesc, err := f.addJSON(typeConfig, config)
	if err != nil {
		return nil, err
	}
	version := imagespec.Versioned{SchemaVersion: 2}
	first, err := f.addJSON(specs.MediaTypeImageManifest, specs.Manifest{Versioned: version,
		MediaType: specs.MediaTypeImageManifest, Config: configDesc, Layers: modules})
	if err != nil {
		return nil, err
	}
	first.Platform = &specs.Platform{Architecture: config.Architecture, OS: config.OS}
	empty := f.add(specs.MediaTypeEmptyJSON, []byte("{}"))
	second, err := f.addJSON(specs.MediaTypeImageManifest, specs.Manifest{Versioned: version,
		MediaType: specs.MediaTypeImageManifest, ArtifactType: typeAbout, Config: empty,
		Layers: about})
	if err != nil {
		return nil, err
	}
	second.ArtifactType = typeAbout
	f.root, err = f.addJSON(specs.MediaTypeImageIndex, specs.Index{Versioned: version,
		MediaType: specs.MediaTypeImageIndex, ArtifactType: typeBundle,
		Manifests: []specs.Descriptor{first, second},
		Annotations: map[string]string{specs.AnnotationTitle: b.Name,
			specs.AnnotationVersion: b.Version}})
	return f, err
}

// named sets the annotation by which tools that unpack artifacts name the file.
func named(d specs.Descriptor, name string) specs.Descriptor {
	d.Annotations = map[string]string{specs.AnnotationTitle: name}
	return d
}

// Push copies a signed bundle to a registry or directory, and returns the digest of its index. The
// tag is the bundle's version if the reference has none.
func (c *Client) Push(ctx context.Context, b *bundle.Bundle, ref Reference) (string, error) {
	if ref.Digest != "" {
		return "", fmt.Errorf("%s: a push returns a digest, and takes a tag", ref)
	}
	ref.Tag = cmp.Or(ref.Tag, b.Version)
	f, err := pack(b)
	if err != nil {
		return "", err
	}
	var dst interface {
		content.Storage
		content.Tagger
	}
	if ref.Layout != "" {
		dst, err = oci.NewWithContext(ctx, ref.Layout)
	} else {
		dst, err = c.repository(ref)
	}
	if err != nil {
		return "", err
	}
	if err := oras.CopyGraph(ctx, f, dst, f.root,
		oras.CopyGraphOptions{Concurrency: 1}); err != nil {
		return "", describe(ctx, ref, fmt.Errorf("%s: %w", ref, err))
	}
	return f.root.Digest.String(), describe(ctx, ref, dst.Tag(ctx, f.root, ref.Tag))
}
