package api

import (
	"context"
	"net/http"

	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/images"
	"github.com/jail-sandbox/jail/supervisor/service"
)

// imageRoots answers for the images that a daemon has unpacked.
type imageRoots struct{ s *service.Service }

func (h imageRoots) list(_ context.Context, c caller.Caller, _ *http.Request) (any, error) {
	all, err := h.s.Images().List(c)
	if all == nil {
		all = []images.About{}
	}
	return all, err
}

// Images returns the images that were added, and those of directories that the caller's runs have
// used.
func Images(ctx context.Context, c *Client) (all []images.About, err error) {
	return all, c.link.do(ctx, "GET", pathImages, nil, &all)
}

// AddImage unpacks an image of a directory for every user, by a name.
func AddImage(ctx context.Context, c *Client, name string, o images.ImageOffer) (a images.About,
	err error) {
	return a, c.link.do(ctx, "PUT", item(pathImages, name), o, &a)
}

// RemoveImage takes the image of a name away, or by its digest one that the caller's runs have used.
func RemoveImage(ctx context.Context, c *Client, name string) (a images.About, err error) {
	return a, c.link.do(ctx, "DELETE", item(pathImages, name), nil, &a)
}
