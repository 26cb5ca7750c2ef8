package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/images"
)

// maxOffer bounds the first line of an uploaded bundle, in bytes: a manifest in base64 and its
// signed statement.
const maxOffer = 2 << 20

// bundleType is the media type of an uploaded bundle: an Offer as one line of JSON, then the
// contents of its files, in the order and of the sizes in the manifest. So no archive with file
// names has to be unpacked.
const bundleType = "application/vnd.jail.bundle"

// A RingRequest installs the key ring of a publisher.
type RingRequest struct {
	// The ring, a signed note.
	Ring string `json:"ring"`
	// Explicit says that the operator vouches for the ring. Otherwise the ring in use must vouch
	// for it.
	Explicit bool `json:"explicit,omitempty"`
}

func (srv *Server) installTool(q call) (any, error) {
	body := bufio.NewReaderSize(q.Body, 64<<10)
	offer, err := readOffer(body)
	if err != nil {
		return nil, err
	}
	return srv.s.Tools().Install(q.Context(), q.caller, offer, body)
}

func readOffer(body *bufio.Reader) (o bundle.Offer, err error) {
	var line []byte
	for {
		part, err := body.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxOffer:
			return o, badBody(fmt.Errorf("its first line is longer than %d bytes", maxOffer))
		case err == nil:
			if err = decode(line, &o); err != nil {
				err = badBody(err)
			}
			return o, err
		case !errors.Is(err, bufio.ErrBufferFull):
			return o, badBody(err)
		}
	}
}

// InstallTool uploads a bundle for installation. files has the contents of its files, in the order
// of its manifest.
func (c *Client) InstallTool(ctx context.Context, o bundle.Offer,
	files io.Reader) (in bundle.Installed, err error) {
	line, err := json.Marshal(o)
	if err != nil {
		return in, err
	}
	source := &keepsError{Reader: files}
	body := io.MultiReader(bytes.NewReader(append(line, '\n')), source)
	req, err := http.NewRequestWithContext(ctx, "POST", "http://jail"+pathTools, body)
	if err != nil {
		return in, err
	}
	req.Header.Set("Content-Type", bundleType)
	resp, err := c.link.http.Do(req)
	if err != nil {
		if failed := source.failed(); failed != nil {
			return in, failed
		}
		return in, c.link.explain(err)
	}
	answer, err := success(resp)
	if err != nil {
		return in, err
	}
	defer answer.Close()
	return in, json.NewDecoder(answer).Decode(&in)
}

// RemoveTool removes a pulled bundle. With forget it also forgets the versions that were seen of
// it.
func (c *Client) RemoveTool(ctx context.Context, name string, forget bool) (in bundle.Installed,
	err error) {
	path := item(pathTools, name)
	if forget {
		path += "?forget=1"
	}
	return in, c.link.do(ctx, "DELETE", path, nil, &in)
}

// SetRing installs the key ring of a publisher.
func (c *Client) SetRing(ctx context.Context, publisher string, req RingRequest) error {
	return c.link.do(ctx, "PUT", item(pathPublishers, publisher), req, &struct{}{})
}

// RemoveRing removes the key ring of a publisher.
func (c *Client) RemoveRing(ctx context.Context, publisher string) error {
	return c.link.do(ctx, "DELETE", item(pathPublishers, publisher), nil, &struct{}{})
}

// Images returns the added images and the images of directories that the caller's runs have used.
func Images(ctx context.Context, c *Client) (all []images.About, err error) {
	return all, c.link.do(ctx, "GET", pathImages, nil, &all)
}

// AddImage unpacks the image in a directory under a name, for all users.
func AddImage(ctx context.Context, c *Client, name string, o images.ImageOffer) (a images.About,
	err error) {
	return a, c.link.do(ctx, "PUT", item(pathImages, name), o, &a)
}

// RemoveImage removes the image with that name, or the one with that digest that the caller's runs
// have used.
func RemoveImage(ctx context.Context, c *Client, name string) (a images.About, err error) {
	return a, c.link.do(ctx, "DELETE", item(pathImages, name), nil, &a)
}

// keepsError is a reader that remembers its error. net/http would report it as if the daemon had
// failed.
type keepsError struct {
	io.Reader
	err atomic.Pointer[error]
}

func (r *keepsError) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err.Store(&err)
	}
	return n, err
}

// failed returns the error of the reader, or nil.
func (r *keepsError) failed() error {
	if err := r.err.Load(); err != nil {
		return *err
	}
	return nil
}
