package api

import (
	"context"

	"github.com/jail-sandbox/jail/supervisor/images"
)

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
