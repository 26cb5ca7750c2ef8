package denials

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// As a kernel 7.3 writes them; the paths of the third and fourth hold a blank, and a quote, a
// line's end and a byte that is no text.
const (
	accessText = `audit(1795322541.175:7): domain=175626ccf blockers=fs.read_dir path="/" dev="tmpfs" ino=1`
	madeText   = `audit(1795322541.175:7): domain=175626ccf status=allocated mode=enforcing pid=339 uid=2116354048 exe="/run/jail/init" comm="init"`
	endedText  = `audit(1795322541.755:8): domain=175626ccf status=deallocated denials=1`
)

func TestParse(t *testing.T) {
	at := time.Unix(1795322541, 175e6).UTC()
	for _, c := range []struct {
		kind uint16
		text string
		want record
	}{
		{typeAccess, accessText, record{domain: 0x175626ccf, at: at, what: "read_dir /"}},
		{typeAccess, accessText + "\x00", record{domain: 0x175626ccf, at: at, what: "read_dir /"}},
		{typeDomain, madeText,
			record{domain: 0x175626ccf, at: at, made: true, pid: 339, uid: 2116354048}},
		{typeDomain, endedText,
			record{domain: 0x175626ccf, at: at.Add(580 * time.Millisecond), ended: true, total: 1}},
		{typeAccess,
			`audit(1795322541.175:7): domain=a blockers=fs.write_file,fs.truncate path=2F746D702F6120622F dev="tmpfs" ino=1`,
			record{domain: 10, at: at, what: "write_file,truncate /tmp/a b/"}},
		{typeAccess,
			`audit(1795322541.175:7): domain=a blockers=fs.make_reg path=2F220AFF dev="tmpfs" ino=1`, record{domain: 10, at: at, what: "make_reg /\"\n\xff"}},
		{typeAccess, `audit(1795322541.175:7): domain=a blockers=fs.read_file path="<too_long>"`,
			record{domain: 10, at: at, what: "read_file <too_long>"}},
		{typeAccess, `audit(1795322541.175:7): domain=a blockers=fs.read_file path=<no_memory>`,
			record{domain: 10, at: at, what: "read_file a path that the kernel did not tell"}},
		{typeAccess,
			`audit(1795322541.175:7): domain=a blockers=fs.change_topology name="/" dev="tmpfs" ino=1`, record{domain: 10, at: at, what: "change_topology /"}},
		{typeAccess,
			`audit(1795322541.175:7): domain=a blockers=net.connect_tcp daddr=127.0.0.1 dest=80`,
			record{domain: 10, at: at, what: "connect_tcp(80)"}},
		{typeAccess, `audit(1795322541.175:7): domain=a blockers=net.bind_tcp src=443`,
			record{domain: 10, at: at, what: "bind_tcp(443)"}},
		{typeAccess,
			`audit(1795322541.175:7): domain=a blockers=scope.signal opid=1 ocomm="systemd"`,
			record{domain: 10, at: at, what: "signal(systemd)"}},
		{typeAccess, `audit(1795322541.175:7): domain=a blockers=ptrace opid=1 ocomm=6120`,
			record{domain: 10, at: at, what: "ptrace(a )"}},
		{typeAccess,
			`audit(1795322541.175:7): domain=a blockers=scope.abstract_unix_socket path=007800`,
			record{domain: 10, at: at, what: "abstract_unix_socket(@x\x00)"}},
		{typeAccess, `audit(1795322541.175:7): domain=a blockers=fs.brand_new more=7`,
			record{domain: 10, at: at, what: "brand_new"}},
	} {
		if got, err := parse(c.kind, c.text); err != nil || got != c.want {
			t.Errorf("%s:\n%+v, %v, want\n%+v", c.text, got, err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const begin = "audit(1.000:1): "
	for name, c := range map[string]struct {
		kind uint16
		text string
	}{
		"empty":               {typeAccess, ""},
		"another type":        {1300, accessText},
		"an access as domain": {typeDomain, accessText},
		"a domain as access":  {typeAccess, madeText},
		"no time":             {typeAccess, strings.Replace(accessText, "1795322541.175", "now", 1)},
		"no number":           {typeAccess, strings.Replace(accessText, ":7)", ":)", 1)},
		"micros":              {typeAccess, strings.Replace(accessText, ".175", ".175000", 1)},
		"no domain":           {typeAccess, begin + `blockers=fs.read_file path="/"`},
		"domain 0":            {typeAccess, begin + `domain=0 blockers=fs.read_file path="/"`},
		"long domain": {typeAccess,
			begin + `domain=10000000000000000 blockers=fs.read_file path="/"`},
		"two domains":        {typeAccess, begin + `domain=1 domain=2 blockers=fs.read_file path="/"`},
		"two paths":          {typeAccess, begin + `domain=1 blockers=fs.read_file path="/" path="/x"`},
		"open quote":         {typeAccess, begin + `domain=1 blockers=fs.read_file path="/`},
		"after the quote":    {typeAccess, begin + `domain=1 blockers=fs.read_file path="/"x`},
		"no blockers":        {typeAccess, begin + `domain=1 path="/"`},
		"an empty blocker":   {typeAccess, begin + `domain=1 blockers=fs.read_file, path="/"`},
		"a blocker of signs": {typeAccess, begin + `domain=1 blockers=fs.re/ad path="/"`},
		"capital letters":    {typeAccess, begin + `DOMAIN=1 blockers=fs.read_file path="/"`},
		"no value":           {typeAccess, begin + `domain=1 blockers`},
		"many blockers": {typeAccess,
			begin + `domain=1 blockers=` + strings.Repeat("fs.a,", maxRights) + `fs.a`},
		"many fields": {typeAccess,
			begin + `domain=1 blockers=fs.a ` + strings.Repeat("", 0) + many(maxFields)},
		"long": {typeAccess, begin + `domain=1 blockers=fs.a path="` +
			strings.Repeat("x", maxRecord) + `"`},
		"status":       {typeDomain, begin + `domain=1 status=other`},
		"pid 0":        {typeDomain, strings.Replace(madeText, "pid=339", "pid=0", 1)},
		"pid of text":  {typeDomain, strings.Replace(madeText, "pid=339", "pid=x", 1)},
		"negative uid": {typeDomain, strings.Replace(madeText, "uid=2116354048", "uid=-1", 1)},
		"no total":     {typeDomain, begin + `domain=1 status=deallocated`},
		"a total too large": {typeDomain,
			begin + `domain=1 status=deallocated denials=18446744073709551615`},
	} {
		if got, err := parse(c.kind, c.text); !errors.Is(err, errRecord) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(" f" + strings.Repeat("x", i) + "=1")
	}
	return b.String()
}

// FuzzParse: whatever comes as a record, it is refused or holds what a record can.
func FuzzParse(f *testing.F) {
	for _, text := range []string{accessText, madeText, endedText,
		`audit(1.000:1): domain=1 blockers=net.bind_tcp src=443`,
		`audit(1.000:1): domain=a blockers=fs.make_reg path=2F220AFF dev="tmpfs" ino=1`} {
		f.Add(uint16(typeAccess), text)
		f.Add(uint16(typeDomain), text)
	}
	f.Fuzz(func(t *testing.T, kind uint16, text string) {
		r, err := parse(kind, text)
		if err != nil {
			return
		}
		access := r.what != ""
		if r.domain == 0 || access == (r.made || r.ended) || r.made && (r.ended || r.pid < 1) ||
			r.ended && int64(r.total) < 0 || len(r.what) > maxRecord {
			t.Errorf("%q: %+v", text, r)
		}
		if word, _, _ := strings.Cut(r.what, " "); access &&
			strings.ContainsAny(strings.TrimRight(word, ")"), "/\n") && !strings.Contains(word,
			"(") {
			t.Errorf("%q: %q has no right first", text, r.what)
		}
	})
}
