package console

import (
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// headers are set on every answer, also on refusals.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; " +
		"frame-ancestors 'none'; base-uri 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	// Not no-referrer, since browsers then send "Origin: null" with forms. Other ports get no
	// referrer.
	"Referrer-Policy": "same-origin",
	"Cache-Control":   "no-store",
}

// ServeHTTP answers permitted requests and refuses others with a reason.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	if status, why := c.allowed(r); why != "" {
		drain(r)
		http.Error(w, why, status)
		return
	}
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
	c.mux.ServeHTTP(w, r)
}

// allowed checks the origin and target of a request, not yet the login. why is "" if the request is
// allowed, else the reason for the answer with status.
func (c *Console) allowed(r *http.Request) (status int, why string) {
	switch {
	case !c.knownHost(r.Host):
		return http.StatusMisdirectedRequest,
			"This console answers on its own address only. Open the address that jail console " +
				"printed."
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		return http.StatusMethodNotAllowed, "This console answers GET and POST."
	}
	from := r.Header.Values("Sec-Fetch-Site")
	own := len(from) == 1 && (from[0] == "same-origin" || from[0] == "none")
	if r.Method == http.MethodPost {
		origin := r.Header.Values("Origin")
		kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		switch {
		case len(origin) != 1 || origin[0] != "http://"+r.Host:
			return http.StatusForbidden,
				"This form was not sent by a page of this console (Origin)."
		case len(from) > 0 && !own:
			// "same-site" is another port of this host
			return http.StatusForbidden,
				"This form was not sent by a page of this console (Sec-Fetch-Site)."
		case err != nil || kind != "application/x-www-form-urlencoded":
			return http.StatusUnsupportedMediaType, "This console takes forms."
		}
		return 0, ""
	}
	// Content embedded by other sites is refused. A link from another program may only lead to the
	// login and the front page, which show nothing.
	if len(from) > 0 && !own {
		navigates := r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
			r.Header.Get("Sec-Fetch-Dest") == "document"
		if !navigates || strings.HasPrefix(r.URL.Path, sessionPath) {
			return http.StatusForbidden,
				"This page was asked for by another site. Open it from the address bar."
		}
	}
	return 0, ""
}

// knownHost reports whether a Host header is accepted. It prevents DNS rebinding.
func (c *Console) knownHost(host string) bool {
	if len(c.Hosts) > 0 {
		return slices.Contains(c.Hosts, host)
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), "80"
	}
	return (name == "localhost" || name == "127.0.0.1" || name == "::1") && digits(port)
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// known wraps a handler: it requires a login, and for a POST the CSRF token of the form.
func (c *Console) known(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var s *session
		// Another server on this host may have set a cookie of this name.
		for _, cookie := range r.CookiesNamed(cookieName) {
			if found := c.logins.find(r.PathValue("session"), cookie.Value); found != nil {
				s = found
			}
		}
		if s == nil {
			drain(r)
			c.show(w, s.said(http.StatusUnauthorized, notice{Title: "Not logged in",
				Text: "This login has ended, or jail console was started anew.",
				Hint: "In the terminal in which jail console runs, press Enter for a new link."}))
			return
		}
		if r.Method == http.MethodPost {
			if err := r.ParseForm(); err != nil {
				c.show(w, s.said(http.StatusBadRequest, notice{Title: "Not understood",
					Text: "The form is damaged or larger than 4 MiB; nothing was done.",
					Hint: "Mark less at a time."}))
				return
			}
			if subtle.ConstantTimeCompare([]byte(r.PostForm.Get("csrf")), []byte(s.csrf)) != 1 {
				c.show(w, s.said(http.StatusForbidden, notice{Title: "Refused",
					Text: "The form is not one of this login; nothing was done.",
					Hint: "Open the page again."}))
				return
			}
		}
		h(w, r, s)
	}
}

// Loopback parses an address and port to listen on. It returns false unless the address is a
// numeric loopback address.
func Loopback(address string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddrPort(address)
	return a, err == nil && a.Addr().IsLoopback() && !a.Addr().Is4In6() && a.Addr().Zone() == ""
}
