package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	loginPath   = "/login/"
	sessionPath = "/c/"
	cookieName  = "jail-console"

	// linkLife is how long a login link is valid.
	linkLife = 10 * time.Minute
	// sessionLife is how long a login lasts.
	sessionLife = 12 * time.Hour

	// If there are more, the oldest is dropped.
	maxLinks    = 64
	maxSessions = 64
)

// logins has the printed links and the logins made with them. It stores and looks up only hashes of
// secrets, so that the time of a lookup reveals nothing.
type logins struct {
	now   func() time.Time
	mu    sync.Mutex
	links map[[sha256.Size]byte]time.Time // until when
	// by the secret in their path
	sessions map[string]*session
}

// A session is one login. Its path contains a secret besides the cookie, since browsers send a
// cookie to every port of a host, but only below its path.
type session struct {
	base   string
	cookie [sha256.Size]byte
	csrf   string
	until  time.Time
}

func newLogins(now func() time.Time) *logins {
	return &logins{now: now, links: map[[sha256.Size]byte]time.Time{},
		sessions: map[string]*session{}}
}

// secret returns 256 random bits in URL-safe base64.
func secret() string {
	var b [32]byte
	// Never fails: it ends the program instead.
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// sweep removes expired links and logins, and the oldest if there are too many.
func (l *logins) sweep() {
	now := l.now()
	var eldestLink [sha256.Size]byte
	eldest := time.Time{}
	for hash, until := range l.links {
		if !now.Before(until) {
			delete(l.links, hash)
		} else if eldest.IsZero() || until.Before(eldest) {
			eldest, eldestLink = until, hash
		}
	}
	if len(l.links) >= maxLinks {
		delete(l.links, eldestLink)
	}
	var first *session
	for base, s := range l.sessions {
		if !now.Before(s.until) {
			delete(l.sessions, base)
		} else if first == nil || s.until.Before(first.until) {
			first = s
		}
	}
	if len(l.sessions) >= maxSessions {
		delete(l.sessions, first.base)
	}
}

func (l *logins) issue() (token string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep()
	token, until = secret(), l.now().Add(linkLife)
	l.links[sha256.Sum256([]byte(token))] = until
	return token, until
}

// redeem turns a link into a login, once. It returns nil if the token is not valid.
func (l *logins) redeem(token string) (s *session, cookie string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hash := sha256.Sum256([]byte(token))
	until, ok := l.links[hash]
	delete(l.links, hash)
	if !ok || !l.now().Before(until) {
		return nil, ""
	}
	l.sweep()
	cookie = secret()
	s = &session{base: secret(), cookie: sha256.Sum256([]byte(cookie)), csrf: secret(),
		until: l.now().Add(sessionLife)}
	l.sessions[s.base] = s
	return s, cookie
}

func (l *logins) find(base, cookie string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sessions[base]
	hash := sha256.Sum256([]byte(cookie))
	if s == nil || subtle.ConstantTimeCompare(s.cookie[:], hash[:]) != 1 ||
		!l.now().Before(s.until) {
		return nil
	}
	return s
}

func (l *logins) end(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, s.base)
}

func (s *session) path() string { return sessionPath + s.base }

func (s *session) runPath(id string) string { return s.path() + "/runs/" + segment(id) }

func (s *session) page(title, here string, body any) page {
	return page{Title: title, Base: s.path(), CSRF: s.csrf, Here: here, Body: body}
}

// login logs in with a link. HEAD requests and prefetching browsers do not use up the link.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead ||
		strings.Contains(r.Header.Get("Sec-Purpose")+r.Header.Get("Purpose"), "pre") {
		http.Error(w, "This link is for a person.", http.StatusServiceUnavailable)
		return
	}
	s, cookie := c.logins.redeem(r.PathValue("token"))
	if s == nil {
		c.show(w, s.said(http.StatusForbidden, notice{Title: "This link is spent",
			Text: "A login link is good once, and for ten minutes. This one was used, has expired " +
				"or was never printed.",
			Hint: "In the terminal in which jail console runs, press Enter for a new link. If " +
				"nobody but you had this one and you did not use it, somebody else did: end the " +
				"console."}))
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: cookie, Path: s.path() + "/",
		HttpOnly: true, SameSite: http.SameSiteStrictMode})
	// The page redirects by itself: after an HTTP redirect from another site's link, a browser
	// would not send the cookie.
	c.show(w, answer{http.StatusOK, "welcome.html", s.page("Welcome", "", nil)})
}

func (c *Console) logout(w http.ResponseWriter, _ *http.Request, s *session) {
	c.logins.end(s)
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: s.path() + "/", MaxAge: -1,
		HttpOnly: true, SameSite: http.SameSiteStrictMode})
	c.show(w, nobody.said(http.StatusOK, notice{Title: "Logged out", Text: "This login has ended.",
		Hint: "In the terminal in which jail console runs, press Enter for a new link."}))
}
