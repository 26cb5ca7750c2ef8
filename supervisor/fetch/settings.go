package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/strict"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
)

// Settings are the operator's settings for fetches. They are in a TOML file that only the daemon's
// user and root can write:
//
//	resolvers = ["9.9.9.9", "[2620:fe::fe]:53"]   # default: those in /etc/resolv.conf
//	roots     = "/etc/ssl/certs/ca-certificates.crt"
//	nat64     = ["64:ff9b::/96"]                  # prefixes by which this network reaches IPv4
//	queries   = false                             # true: record queries as they are, not a hash
//
//	[[credential]]
//	name = "registry"
//	kind = "bearer"                               # bearer, basic, header, query, sigv4
//	file = "/etc/jail/secrets/registry"           # or one of the next three
//	# systemd = "NAME"
//	# env = "NAME"
//	# command = ["/path", "arg"]
//	scrub = true                                  # remove the secret from responses
//
//	[[internal]]                                  # a host inside the operator's network
//	host = "registry.corp"                        # a name, *. and a name, or **. and a name
//	ports = [443]
//	addresses = ["10.1.0.0/16"]                   # all addresses that the name may have
//	# socket = "/run/gateway.sock"                # instead of addresses
//	resolve = true                                # false: dial addresses, ask no name server
type Settings struct {
	Resolvers   []string     `json:"resolvers"`
	Roots       string       `json:"roots"`
	NAT64       []string     `json:"nat64"`
	Queries     bool         `json:"queries"`
	Credentials []Credential `json:"credential"`
	// Internal has the entries as written; check parses them into internal.
	Internal []internalEntry `json:"internal"`

	// path is the path of the file, places the positions of its keys.
	path     string
	places   map[string]syntax.Position
	internal []Internal

	servers []netip.AddrPort
	nat64   []netip.Prefix
}

// Credential describes a secret and where it is stored. It does not contain the secret.
type Credential struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Exactly one of File, Systemd, Env and Command is set.
	File string `json:"file"`
	// Systemd is the name of a file in $CREDENTIALS_DIRECTORY.
	Systemd string `json:"systemd"`
	// Env is the name of a variable of the daemon's environment.
	Env string `json:"env"`
	// Command is a command that prints the secret.
	Command []string `json:"command"`

	User           string `json:"user"`
	Header         string `json:"header"`
	Parameter      string `json:"parameter"`
	Region         string `json:"region"`
	Service        string `json:"service"`
	AllowCleartext bool   `json:"allow_cleartext"`
	Scrub          *bool  `json:"scrub"`
}

// systemRoots are the paths at which distributions keep trusted certificates.
var systemRoots = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/cert.pem"}

// ReadSettings reads and checks the settings at path. Without a file it returns the defaults.
func ReadSettings(path string) (Settings, error) {
	var s Settings
	text, err := profiles.ReadTrusted(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return s, err
	default:
		if err := s.parse(path, text); err != nil {
			return s, err
		}
	}
	return s, s.check()
}

func (s *Settings) parse(path string, text []byte) error {
	values, places, err := syntax.PlainAt(path, text)
	if err != nil {
		return err
	}
	s.path, s.places = path, places
	plain, err := json.Marshal(values)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := strict.JSON(plain, s); err != nil {
		if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("%s: %s is a %s, which it cannot be: docs/fetch.md has an example",
				s.place(kind.Field), kind.Field, kind.Value)
		}
		text := strings.TrimPrefix(err.Error(), "json: ")
		_, key, _ := strings.Cut(text, `unknown field "`)
		return fmt.Errorf("%s: %s", s.place(strings.TrimSuffix(key, `"`)), text)
	}
	return nil
}

// place returns the position of a key, or the path of the file if the position is unknown. key is a
// path such as internal.0.host, or the end of one.
func (s *Settings) place(key string) string {
	var found syntax.Position
	for path, at := range s.places {
		same := path == key || strings.HasSuffix(path, "."+key) || withoutNumbers(path) == key
		before := cmp.Or(cmp.Compare(at.Line, found.Line), cmp.Compare(at.Column, found.Column)) < 0
		if key != "" && same && (found.Line == 0 || before) {
			found = at
		}
	}
	if found.Line == 0 {
		return s.path
	}
	return found.String()
}

// withoutNumbers removes the list indexes from a path of keys.
func withoutNumbers(path string) string {
	keys := strings.Split(path, ".")
	return strings.Join(slices.DeleteFunc(keys, func(key string) bool {
		return strings.Trim(key, "0123456789") == ""
	}), ".")
}

// checkInternal parses and checks the entries [[internal]].
func (s *Settings) checkInternal() error {
	if len(s.Internal) > maxInternal {
		return fmt.Errorf("%s: there are %d entries [[internal]], at most %d", s.path, len(s.Internal),
			maxInternal)
	}
	for i, entry := range s.Internal {
		at := fmt.Sprintf("internal.%d", i)
		e, err := entry.parse(s.nat64)
		e.Line = s.places[at].Line
		if err == nil {
			err = overlap(s.internal, e)
		}
		if m := (*mistake)(nil); errors.As(err, &m) && m.key != "" {
			at += "." + m.key
		}
		if err != nil {
			return fmt.Errorf("%s: [[internal]]: %w", s.place(at), err)
		}
		s.internal = append(s.internal, e)
	}
	return nil
}

func (s *Settings) check() error {
	texts := s.Resolvers
	if len(texts) == 0 {
		texts = systemResolvers()
	}
	for _, text := range texts {
		server, err := netip.ParseAddrPort(text)
		if err != nil {
			var a netip.Addr
			if a, err = netip.ParseAddr(text); err != nil {
				return fmt.Errorf("resolvers: %q is no address", text)
			}
			server = netip.AddrPortFrom(a, 53)
		}
		s.servers = append(s.servers, server)
	}
	for _, text := range s.NAT64 {
		p, err := netip.ParsePrefix(text)
		if err == nil {
			err = checkNAT64(p)
		}
		if err != nil {
			return fmt.Errorf("nat64: %w", err)
		}
		s.nat64 = append(s.nat64, p)
	}
	seen := map[string]bool{}
	for _, c := range s.Credentials {
		if err := c.check(); err != nil {
			return fmt.Errorf("credential %q: %w", c.Name, err)
		}
		if seen[c.Name] {
			return fmt.Errorf("credential %q is there twice", c.Name)
		}
		seen[c.Name] = true
	}
	return s.checkInternal()
}

// systemResolvers returns the name servers in /etc/resolv.conf.
func systemResolvers() (out []string) {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		// Without a name server every fetch fails with its own error.
		return nil
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			out = append(out, a.String())
		}
	}
	return out
}

func (c Credential) check() error {
	sources := 0
	for _, said := range []bool{c.File != "", c.Systemd != "", c.Env != "", len(c.Command) > 0} {
		if said {
			sources++
		}
	}
	switch err := policy.CheckCredential(c.Name); {
	case err != nil:
		return err
	case c.Name == "" || c.Name == policy.AnyCredential:
		return errors.New("it has no name")
	case sources != 1:
		return errors.New("one of file, systemd, env and command says where it is")
	case c.File != "" && !filepath.IsAbs(c.File):
		return errors.New("file is no absolute path")
	case len(c.Command) > 0 && !filepath.IsAbs(c.Command[0]):
		return errors.New("command is no absolute path")
	case strings.ContainsAny(c.Systemd, "/\x00") || c.Systemd == "..":
		return errors.New("systemd is no plain name")
	}
	s := c.secret("long enough to be one")
	return s.check()
}

func (c Credential) secret(value string) Secret {
	s := Secret{Kind: c.Kind, Value: value, User: c.User, Region: c.Region, Service: c.Service,
		Cleartext: c.AllowCleartext, Scrub: c.Scrub == nil || *c.Scrub}
	switch c.Kind {
	case secretHeader:
		s.Name = c.Header
	case secretQuery:
		s.Name = c.Parameter
	}
	return s
}

// SetupFor returns the setup for the proxy of a run with policy eff. It reads the secrets that the
// policy's rules name.
func (s Settings) SetupFor(ctx context.Context, eff policy.Effective) (Setup, error) {
	out := Setup{Servers: s.servers, NAT64: s.nat64, Queries: s.Queries,
		Internal: s.internal, Secrets: map[string]Secret{}}
	for i, l := range eff.Layers() {
		if i == 0 {
			out.Ceiling = l.Name
		}
		out.Layers = append(out.Layers,
			SetupLayer{Name: l.Name, Source: l.Source, Fetch: l.Policy.Fetch,
				Approve: l.Policy.Approve})
	}
	var err error
	if out.Roots, err = s.roots(); err != nil {
		return out, err
	}
	for _, name := range eff.Policy().Fetch.Credentials() {
		for _, c := range s.Credentials {
			if c.Name != name {
				continue
			}
			value, err := c.read(ctx)
			if err == nil {
				secret := c.secret(value)
				out.Secrets[name], err = secret, secret.check()
			}
			if err != nil {
				return out, fmt.Errorf("credential %q: %w", name, err)
			}
		}
	}
	return out, nil
}

func (s Settings) roots() ([]byte, error) {
	if s.Roots != "" {
		return os.ReadFile(s.Roots)
	}
	for _, path := range systemRoots {
		text, err := os.ReadFile(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
	}
	// No host can be verified then, and each https fetch reports that.
	return nil, nil
}

// Bounds for reading secrets.
const (
	maxSecret   = 64 << 10 // bytes
	commandTime = 10 * time.Second
)

// read returns the secret without the line ends at its end.
func (c Credential) read(ctx context.Context) (string, error) {
	var text []byte
	var err error
	switch {
	case c.File != "":
		text, err = readSecret(c.File)
	case c.Systemd != "":
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return "", errors.New("systemd has handed over no credentials")
		}
		text, err = readSecret(filepath.Join(dir, c.Systemd))
	case c.Env != "":
		value, ok := os.LookupEnv(c.Env)
		if !ok {
			return "", fmt.Errorf("the daemon has no variable %s", c.Env)
		}
		text = []byte(value)
	default:
		text, err = c.run(ctx)
	}
	return strings.TrimRight(string(text), "\r\n"), err
}

// readSecret reads a file that only root can write and that not everybody can read. It opens the
// file once, without following a link, and checks the open file.
func readSecret(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.New("its file cannot be opened: " + errors.Unwrap(err).Error())
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return nil, errors.New("its file is no regular file")
	case !asuser.Rules(st.Uid):
		return nil, errors.New("its file is not root's")
	case info.Mode().Perm()&^0o640 != 0:
		return nil, fmt.Errorf("its file has the mode %04o: make it 0600", info.Mode().Perm())
	case info.Size() > maxSecret:
		return nil, fmt.Errorf("its file is larger than %d bytes", maxSecret)
	}
	return io.ReadAll(io.LimitReader(f, maxSecret))
}

// run returns the output of the operator's command. Errors do not show its standard error, which
// may contain the secret.
func (c Credential) run(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.Output()
	switch {
	case err != nil:
		return nil, errors.New("its command failed")
	case len(out) > maxSecret:
		return nil, fmt.Errorf("its command printed more than %d bytes", maxSecret)
	}
	return out, nil
}
