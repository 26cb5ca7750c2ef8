package oci

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	specs "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

// Bounds of an image that is pulled. The daemon bounds the unpacked files itself.
const (
	maxImage       = 8 << 30 // bytes of all layers
	maxImageLayers = 256
)

// Docker's media types for the same formats.
const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// An Image is an image's manifest for this host's platform.
type Image struct {
	// Manifest is its text, and Digest the digest of the text.
	Manifest []byte
	Digest   string
}

// FindImage reads the manifest of an image from a registry or directory.
func (c *Client) FindImage(ctx context.Context, ref Reference) (Image, error) {
	src, err := c.source(ref)
	if err != nil {
		return Image{}, err
	}
	_, image, err := readImage(ctx, src, ref)
	return image, describe(ctx, ref, err)
}

// PullImage copies an image for this host into dir in the OCI image layout. It creates dir if
// needed. A repeated pull resumes one that was interrupted.
func (c *Client) PullImage(ctx context.Context, ref Reference, dir string) (Image, error) {
	src, err := c.source(ref)
	if err != nil {
		return Image{}, err
	}
	a, image, err := readImage(ctx, src, ref)
	if err != nil {
		return Image{}, describe(ctx, ref, err)
	}
	return image, c.keep(ctx, src, a, ref, dir)
}

// readImage reads the manifest and configuration of an image and checks the sizes of its layers.
func readImage(ctx context.Context, s source, ref Reference) (*artifact, Image, error) {
	fail := func(format string, args ...any) (*artifact, Image, error) {
		return nil, Image{}, fmt.Errorf("%s: %w: %s", ref, ErrArtifact, fmt.Sprintf(format, args...))
	}
	a, err := resolve(ctx, s, ref)
	if err != nil {
		return nil, Image{}, fmt.Errorf("%s: %w", ref, err)
	}
	d := a.root
	if d.MediaType == specs.MediaTypeImageIndex || d.MediaType == dockerList {
		var index specs.Index
		if err := a.document(ctx, s, d, &index); err != nil {
			return nil, Image{}, err
		}
		i := slices.IndexFunc(index.Manifests, func(d specs.Descriptor) bool {
			return d.Platform != nil && d.Platform.OS == "linux" &&
				d.Platform.Architecture == runtime.GOARCH
		})
		if i < 0 {
			return fail("it has no image for linux/%s", runtime.GOARCH)
		}
		d = index.Manifests[i]
	}
	if d.MediaType != specs.MediaTypeImageManifest && d.MediaType != dockerManifest {
		return fail("%.100q is no manifest of an image", d.MediaType)
	}
	var m specs.Manifest
	if err := a.document(ctx, s, d, &m); err != nil {
		return nil, Image{}, err
	}
	image := Image{a.documents[len(a.documents)-1].content, d.Digest.String()}
	if _, err := a.blob(ctx, s, m.Config, maxDocument); err != nil {
		return nil, Image{}, err
	}
	if len(m.Layers) > maxImageLayers {
		return fail("%d layers, where %d are allowed", len(m.Layers), maxImageLayers)
	}
	total := int64(0)
	for _, l := range m.Layers {
		if trust.CheckDigest(l.Digest.String()) != nil || l.Size < 0 || l.Size > maxImage-total ||
			len(l.URLs) > 0 {
			return fail("layer %.100q of %d bytes: together they may have %d, and come from nowhere else",
				l.Digest, l.Size, int64(maxImage))
		}
		total += l.Size
	}
	a.files = m.Layers
	return a, image, nil
}
