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

// headers are those of every answer, the refusals among them.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; " +
		"frame-ancestors 'none'; base-uri 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	// Not no-referrer, with which browsers send "Origin: null" with our own forms. To another port
	// nothing is sent.
	"Referrer-Policy": "same-origin",
	"Cache-Control":   "no-store",
}

// ServeHTTP answers what may be asked, and says of everything else why not.
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

// allowed checks where a request comes from and goes to. The user is checked later. why is "" if
// the request is allowed.
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
	// What another site embeds gets nothing. A link of another program leads to the login and the
	// front page alone, where nothing is shown.
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

// knownHost is what keeps a name out that somebody lets point to this machine.
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

// known lets in who is logged in, and takes a form only with the token that stood in it.
func (c *Console) known(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var s *session
		// Another server on this host may have set one, too.
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

// Loopback checks an address to listen on: a number of the loopback interface, never a name or any
// other interface.
func Loopback(address string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddrPort(address)
	return a, err == nil && a.Addr().IsLoopback() && !a.Addr().Is4In6() && a.Addr().Zone() == ""
}
