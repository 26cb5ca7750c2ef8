// Package anchor sends the signed heads of a log to places outside the host, so that even an owner
// of the log's key cannot remove records or rewrite history unnoticed: `jail audit verify --anchor`
// compares the log with these heads.
package anchor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Settings are the operator's settings for the audit log. They are in a TOML file that only the
// daemon's user and root can write:
//
//	[log]
//	segment_size = "64MiB"         # size after which a new segment starts
//	segment_time = "24h"           # age of its first record after which a new segment starts
//	checkpoint = "1m"              # longest time between signed checkpoints while records come
//	compress = true                # pack segments that are no longer written
//
//	[keep]
//	size = "10GiB"                 # of all segments; older ones are pruned, with a record of it
//	time = "2160h"                 # since the last record of a segment
//
//	[[anchor]]
//	name  = "offsite"
//	to    = "https://anchors.example.com/jail"   # or udp://, tcp:// or unix:// for syslog, or
//	                                             # a file that is appended to
//	every = "1m"                                 # longest time between two heads while records come
//	token = "/etc/jail/secrets/anchor"           # file with the bearer token for an https: address
//
//	[[anchor]]
//	name = "history"
//	# A commit for each head. Also git+https:, git+http:, git:, or git+file: with an absolute path.
//	to   = "git+ssh://anchors@git.example.com/jail.git"
//
//	[[anchor]]
//	name = "neighbour"
//	to   = "witness+https://witness.example.com/"        # another host with a C2SP tlog-witness
//	key  = "/etc/jail/witness.pub"                       # file with its public key
type Settings struct {
	Log     Log      `json:"log"`
	Keep    Keep     `json:"keep"`
	Anchors []Target `json:"anchor"`
}

// Log has the settings for writing the log. Zero values mean the defaults.
type Log struct {
	SegmentSize text[int64]         `json:"segment_size"`
	SegmentTime text[time.Duration] `json:"segment_time"`
	Checkpoint  text[time.Duration] `json:"checkpoint"`
	Compress    bool                `json:"compress"`
}

// Keep has the settings for pruning the log. Zero values keep everything.
type Keep struct {
	Size text[int64]         `json:"size"`
	Time text[time.Duration] `json:"time"`
}

// Keep converts k to package audit's type.
func (k Keep) Keep() audit.Keep { return audit.Keep{Bytes: k.Size.Value, For: k.Time.Value} }

// Target is a destination of heads.
type Target struct {
	Name  string              `json:"name"`
	To    string              `json:"to"`
	Every text[time.Duration] `json:"every"`
	Token string              `json:"token"` // path
	Key   string              `json:"key"`   // path; of a witness
}

// text is an amount in the syntax of policies: "64MiB", "90s".
type text[T int64 | time.Duration] struct{ Value T }

func (v *text[T]) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		return fmt.Errorf("%s is no text, such as \"64MiB\" or \"90s\"", b)
	}
	unit := policy.Bytes
	if _, ok := any(v.Value).(time.Duration); ok {
		unit = policy.Duration
	}
	n, err := unit.Parse(s)
	if err == nil && n <= 0 {
		err = fmt.Errorf("%s is nothing", s)
	}
	v.Value = T(n)
	return err
}

// Bounds of settings.
const (
	defaultEvery = time.Minute
	minEvery     = time.Second
	minSegment   = 64 << 10
	minKeep      = 1 << 20
	minTime      = time.Minute
	maxAnchors   = 16
)

// Read reads and checks the settings in the file at path. Without a file it returns the defaults.
func Read(path string) (Settings, error) {
	var s Settings
	text, err := profiles.ReadTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = syntax.Decode(path, text, &s, s.check)
	}
	if err != nil {
		return Settings{}, err
	}
	return s, nil
}

func (s *Settings) check() error {
	switch {
	case s.Log.SegmentSize.Value != 0 && s.Log.SegmentSize.Value < minSegment:
		return errors.New("log.segment_size: at least 64KiB")
	case s.Log.SegmentTime.Value != 0 && s.Log.SegmentTime.Value < minTime:
		return errors.New("log.segment_time: at least 1m")
	case s.Log.Checkpoint.Value != 0 && s.Log.Checkpoint.Value < minEvery:
		return errors.New("log.checkpoint: at least 1s")
	case s.Keep.Size.Value != 0 && s.Keep.Size.Value < minKeep:
		return errors.New("keep.size: at least 1MiB")
	case s.Keep.Time.Value != 0 && s.Keep.Time.Value < minTime:
		return errors.New("keep.time: at least 1m")
	case len(s.Anchors) > maxAnchors:
		return fmt.Errorf("anchor: there are %d, and at most %d can be", len(s.Anchors), maxAnchors)
	}
	seen := map[string]bool{}
	for i := range s.Anchors {
		t := &s.Anchors[i]
		if err := t.check(); err != nil {
			return fmt.Errorf("anchor %q: %w", t.Name, err)
		}
		if seen[t.Name] {
			return fmt.Errorf("anchor %q is there twice", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

func (t *Target) check() error {
	if err := syntax.CheckName(t.Name); err != nil || strings.Contains(t.Name, "/") {
		return errors.New("name: want lower-case letters, digits, - and _, such as offsite")
	}
	t.Every.Value = cmp.Or(t.Every.Value, defaultEvery)
	if t.Every.Value < minEvery {
		return errors.New("every: at least 1s")
	}
	u, err := url.Parse(t.To)
	switch {
	case err != nil:
		return fmt.Errorf("to: %w", err)
	case u.User != nil && (u.Scheme != gitPrefix+"ssh" || hasPassword(u)):
		return errors.New("to: an address holds no secret; token names a file with one")
	case t.Token != "" && (u.Scheme != "https" && u.Scheme != gitPrefix+"https" ||
		!filepath.IsAbs(t.Token)):
		return errors.New(
			"token must be the absolute path of a file, for an https: or git+https: address")
	case t.Key != "" && (!strings.HasPrefix(u.Scheme, witnessPrefix) || !filepath.IsAbs(t.Key)):
		return errors.New(
			"key must be the absolute path of a file with the public key of a witness, for a " +
				"witness+https: address")
	}
	_, err = open(*t, Keeper{})
	return err
}

func hasPassword(u *url.URL) bool {
	_, is := u.User.Password()
	return is
}
