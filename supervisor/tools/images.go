package tools

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/images"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// Images adds and removes images of a host, with a record of each attempt.
type Images struct {
	Manager
	Images *images.Store
	// Rules returns what the ceiling in force says of the host.
	Rules func() syntax.Host
}

// Add unpacks an image of a directory for every user, by a name. It is on record, and so is one that
// was refused.
func (m *Images) Add(ctx context.Context, c caller.Caller, name string,
	o images.ImageOffer) (images.About, error) {
	if err := m.Permissions(c).Administrator("add an image"); err != nil {
		return images.About{}, err
	}
	o.Source = runlog.Readable([]string{o.Source})[0]
	recorded := false
	about, err := m.Images.Add(ctx, c.Caller, name, o, func(a *images.About) error {
		if err := m.sign(a); err != nil {
			return err
		}
		recorded = true
		return m.record(ctx, c, installed(*a))
	})
	if err == nil || recorded {
		return about, err
	}
	failure := Problem(err)
	about.Name, about.Source = shortened(name), shortened(o.Source)
	refusal := installed(about)
	refusal.Error = failure.Message
	if err := m.record(ctx, c, refusal); err != nil {
		return about, err
	}
	return about, failure
}

func installed(a images.About) audit.ToolInstalled {
	return audit.ToolInstalled{Bundle: images.SignedName(a.Name), Publisher: a.Publisher,
		Digest: a.Digest, Source: a.Source}
}

// sign fills in who has signed an image, and refuses one without a signature where the ceiling asks
// for one, and one with a signature that does not count.
func (m *Images) sign(a *images.About) error {
	if a.Signed == "" && !m.Rules().SignedImages {
		return nil
	}
	rings, err := trust.Load(m.Store.KeysDir(), true)
	if err != nil {
		return err
	}
	s, publisher, err := images.Signer(rings, a.Name, a.Digest, a.Signed)
	if err == nil {
		err = s.Fresh(time.Now())
	}
	a.Publisher = publisher
	return err
}

// List returns the images that were added, and those of directories that the caller's runs have
// used.
func (m *Images) List(c caller.Caller) ([]images.About, error) { return m.Images.List(owner(c)) }

func owner(c caller.Caller) string { return strconv.FormatUint(uint64(c.UID), 10) }

// Remove takes the image of a name away, for which the caller must administer the host, or one that
// was unpacked for the caller, by its digest.
func (m *Images) Remove(ctx context.Context, c caller.Caller, name string) (images.About, error) {
	if strings.HasPrefix(name, "sha256:") {
		return m.Images.Forget(owner(c), name)
	}
	if err := m.Permissions(c).Administrator("remove an image"); err != nil {
		return images.About{}, err
	}
	return m.Images.Remove(name, func(a images.About) error {
		return m.record(ctx, c, audit.ToolRemoved{Bundle: images.SignedName(a.Name),
			Publisher: a.Publisher, Digest: a.Digest})
	})
}
