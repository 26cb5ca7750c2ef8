// Package tools installs and removes pulled bundles, images, and the keys of publishers. Each
// attempt is recorded in the audit log.
package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/images"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// A Manager installs and removes the bundles of a host. A process of the caller has fetched them:
// the daemon does not use the network.
type Manager struct {
	Store *bundle.Store
	// Catalog is reloaded after each change.
	Catalog *bundle.Catalog
	Log     runlog.Appender
	// Permissions returns the permissions of a caller under the current ceiling.
	Permissions func(caller.Caller) caller.Permissions
}

// CheckModule returns an error if a module is not valid WebAssembly, or has imports that its
// manifest does not list.
func CheckModule(entry bundle.ModuleEntry, module []byte) error {
	info, err := wasi.Check(module, runners.ModuleLimits{})
	if err != nil {
		return fmt.Errorf("module %s: %w", entry.File, err)
	}
	for _, im := range info.Imports {
		if name := im.Module + "." + im.Name; !slices.Contains(entry.Imports, name) {
			return fmt.Errorf("module %s: %w: it imports %s", entry.File, bundle.ErrAltered, name)
		}
	}
	return nil
}

// Install verifies a pulled bundle and installs it. files has the contents of its files, in the
// order of the manifest. The audit log gets a record also if the bundle is refused.
func (m *Manager) Install(ctx context.Context, c caller.Caller, o bundle.Offer,
	files io.Reader) (bundle.Installed, error) {
	if err := m.Permissions(c).Administrator("install a bundle"); err != nil {
		return bundle.Installed{}, err
	}
	o.Source = runlog.Readable([]string{o.Source})[0]
	recorded := false
	in, err := m.Store.Install(o, files, time.Now(), func(in bundle.Installed) error {
		recorded = true
		return m.record(ctx, c, audit.ToolInstalled{Bundle: in.Name, Version: in.Version,
			Publisher: in.Publisher, Digest: in.Manifest, Source: in.Source})
	})
	m.Catalog.Reload()
	if err == nil {
		return in, nil
	}
	name := in.Name
	if claims, e := trust.ReadStatement(o.Signed); e == nil && name == "" {
		name, in.Version, in.Manifest = claims.Name, claims.Version, claims.Manifest
	}
	failure := Problem(err)
	refusal := audit.ToolInstalled{Bundle: shortened(name), Version: shortened(in.Version),
		Publisher: in.Publisher, Digest: shortened(in.Manifest), Source: shortened(o.Source),
		Error: failure.Message}
	if recordErr := m.record(ctx, c, refusal); recordErr != nil && !recorded {
		return in, errors.Join(failure, recordErr)
	}
	return in, failure
}

// record writes an event to the audit log, even if ctx is done.
func (m *Manager) record(ctx context.Context, c caller.Caller, e audit.Event) error {
	if _, err := m.Log.Append(context.WithoutCancel(ctx), audit.Entry{Actor: c.Actor(),
		Event: e}); err != nil {
		return problem.New(problem.Failed, "audit log: %w", err).
			WithHint("without a record nothing is installed; make room for it")
	}
	return nil
}

// Remove removes a pulled bundle. If forget is true, it also forgets the versions seen, so that an
// older one can be installed. Only the operator may set forget.
func (m *Manager) Remove(ctx context.Context, c caller.Caller, name string,
	forget bool) (bundle.Installed, error) {
	if err := m.Permissions(c).Administrator("remove a bundle"); err != nil {
		return bundle.Installed{}, err
	}
	if forget {
		if err := operator(c, "forget which versions of a bundle there were"); err != nil {
			return bundle.Installed{}, err
		}
	}
	in, err := m.Store.Remove(name, forget, func(in bundle.Installed) error {
		return m.record(ctx, c, audit.ToolRemoved{Bundle: in.Name, Version: in.Version,
			Publisher: in.Publisher, Digest: in.Manifest, Forgotten: forget})
	})
	return in, m.changed(err)
}

// changed reloads the catalog after a change, and returns err converted by Problem.
func (m *Manager) changed(err error) error {
	m.Catalog.Reload()
	if err != nil {
		return Problem(err)
	}
	return nil
}

// SetRing installs the key ring of a publisher. The ring must be signed by the current ring, unless
// explicit is true: then the operator vouches for it. Only the operator may do so.
func (m *Manager) SetRing(ctx context.Context, c caller.Caller, publisher, text string,
	explicit bool) error {
	if err := operator(c, "change the keys of publishers"); err != nil {
		return err
	}
	ring, err := trust.ParseRing(text)
	if err == nil && ring.Publisher != publisher {
		err = fmt.Errorf("%w: it is of %s, not of %s", trust.ErrRing, ring.Publisher, publisher)
	}
	if err == nil {
		err = m.Store.SetRing(ring, explicit, time.Now(), func() error {
			keys := make([]string, 0, len(ring.Keys))
			for _, k := range ring.Keys {
				keys = append(keys, trust.KeyID(k))
			}
			return m.record(ctx, c, audit.ToolKeys{Publisher: publisher, Version: ring.Version,
				Keys: keys, Explicit: explicit})
		})
	}
	return m.changed(err)
}

// RemoveRing removes the keys of a publisher. Its bundles stay installed but do not run any more.
// Only the operator may do so.
func (m *Manager) RemoveRing(ctx context.Context, c caller.Caller, publisher string) error {
	if err := operator(c, "change the keys of publishers"); err != nil {
		return err
	}
	return m.changed(m.Store.RemoveRing(publisher, func() error {
		return m.record(ctx, c, audit.ToolKeys{Publisher: publisher, Removed: true})
	}))
}

// operator returns an error unless the caller is root, since root may run bundles of trusted
// publishers. A rootless daemon accepts its user.
func operator(c caller.Caller, what string) error {
	if c.UID != 0 && rootless.User() == nil {
		return problem.New(problem.Refused, "%s: only root may", what).WithHint("use sudo")
	}
	return nil
}

func shortened(s string) string { return s[:min(len(s), 300)] }

// Problem converts an error about a bundle, key or image to an API error: refused, not found or
// failed, with a hint.
func Problem(err error) *problem.Error {
	if known, ok := errors.AsType[*problem.Error](err); ok {
		return known
	}
	e := problem.New(problem.Refused, "%w", err)
	switch is := func(target error) bool { return errors.Is(err, target) }; {
	case bundle.IsMissing(err):
		e.Code, e.Hint = problem.NotFound, "jail tool list"
		if missing, ok := errors.AsType[*bundle.NotFoundError](err); ok &&
			missing.Kind == bundle.Publisher {
			e.Hint = "jail tool key list"
		}
	case is(trust.ErrRevoked), is(bundle.ErrAltered), is(bundle.ErrManifest):
		e.Hint = "nothing was installed; ask its publisher"
	case is(trust.ErrSignature):
		e.Hint = "jail tool key list shows whose signatures count; jail tool key add adds a " +
			"publisher's"
	case is(trust.ErrExpired):
		e.Hint = "ask its publisher for a newer signature; a newer key ring comes by jail tool " +
			"key update"
	case is(trust.ErrRollback):
		e.Hint = "jail tool remove --forget NAME drops what was seen, if that is what you want"
	case is(bundle.ErrNotAccepted):
		e.Hint = "jail tool pull --accept DIGEST of the manifest agrees to it"
	case is(bundle.ErrTaken):
		e.Hint = "jail tool remove NAME, if you want the other one"
	case is(trust.ErrRing), is(trust.ErrStatement):
		e.Hint = "jail tool key --help, jail tool sign --help"
	case is(io.ErrUnexpectedEOF):
		e.Hint = "the client ended before it had sent all: pull again"
	default:
		return problem.New(problem.Failed, "%w", err)
	}
	return e
}

// Images adds and removes images of a host, and records each attempt in the audit log.
type Images struct {
	Manager
	Images *images.Store
	// Rules returns the host section of the current ceiling.
	Rules func() syntax.Host
}

// Add unpacks an image from a directory under a name, for all users. The audit log gets a record
// also if the image is refused.
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

// sign verifies the signature of an image and sets its publisher. It returns an error for an
// invalid signature, and for a missing one if the ceiling requires signatures.
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

// List returns the images that were added for all users, and those that were unpacked for the
// caller's runs from directories.
func (m *Images) List(c caller.Caller) ([]images.About, error) { return m.Images.List(owner(c)) }

func owner(c caller.Caller) string { return strconv.FormatUint(uint64(c.UID), 10) }

// Remove removes an image by its name, for which the caller must be an administrator, or by its
// digest (sha256:...) an image that was unpacked for the caller.
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
