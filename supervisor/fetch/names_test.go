package fetch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// A record is one line of a name server's answer: an A, a CNAME, or, of another kind, bytes.
type record struct {
	name string
	kind dnsmessage.Type
	data string
}

// answering is a name server's answer to each question: these records.
func answering(records ...record) func(query []byte) []byte {
	return func(query []byte) []byte {
		var p dnsmessage.Parser
		h, err := p.Start(query)
		if err != nil {
			return nil
		}
		q, err := p.Question()
		if err != nil {
			return nil
		}
		b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: h.ID, Response: true})
		err = errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers())
		for _, r := range records {
			rh := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(r.name),
				Class: dnsmessage.ClassINET}
			switch r.kind {
			case dnsmessage.TypeA:
				err = errors.Join(err,
					b.AResource(rh, dnsmessage.AResource{A: netip.MustParseAddr(r.data).As4()}))
			case dnsmessage.TypeCNAME:
				err = errors.Join(err, b.CNAMEResource(rh,
					dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(r.data)}))
			default:
				err = errors.Join(err, b.UnknownResource(rh,
					dnsmessage.UnknownResource{Type: r.kind, Data: []byte(r.data)}))
			}
		}
		out, finished := b.Finish()
		if errors.Join(err, finished) != nil {
			return nil
		}
		return out
	}
}

// TestAnswers: of what a name server says, the addresses of the very name count, by its aliases
// too; all else is not believed, and no answer holds a request up for longer than its time (T-211,
// T-213).
func TestAnswers(t *testing.T) {
	const up, other, httpsRecord = "up.example.com.", "other.test.", 65
	hint := "\x00\x01\x00\x00\x04\x00\x04\x0a\x01\x02\x03" // ipv4hint = 10.1.2.3
	var many []record
	for range 1000 {
		many = append(many, record{up, dnsmessage.TypeA, upIP})
	}
	// The name of its one record is itself.
	loops := func(query []byte) []byte {
		out := answering(record{up, dnsmessage.TypeA, upIP})(query)
		if i := strings.LastIndex(string(out), "\x02up\x07example\x03com\x00"); i > 12 {
			out = append(append(out[:i:i], 0xc0|byte(i>>8), byte(i)), out[i+len(up)+1:]...)
		}
		return out
	}
	changed := func(change func(answer []byte)) func([]byte) []byte {
		return func(query []byte) []byte {
			out := answering(record{up, dnsmessage.TypeA, upIP})(query)
			change(out)
			return out
		}
	}
	for name, c := range map[string]struct {
		raw    func([]byte) []byte
		status int
	}{
		"an address": {answering(record{up, dnsmessage.TypeA, upIP}), 200},
		"an alias": {answering(record{up, dnsmessage.TypeCNAME, other},
			record{other, dnsmessage.TypeA, upIP}), 200},
		"an alias inside": {answering(record{up, dnsmessage.TypeCNAME, other},
			record{other, dnsmessage.TypeA, "10.1.2.3"}), 403},
		"an alias of aliases": {answering(record{other, dnsmessage.TypeA, "10.1.2.3"},
			record{"b.test.", dnsmessage.TypeCNAME, other}, record{up, dnsmessage.TypeCNAME,
				"b.test."}), 403},
		"an alias without address": {answering(record{up, dnsmessage.TypeCNAME, other}), 502},
		"a circle": {answering(record{up, dnsmessage.TypeCNAME, other},
			record{other, dnsmessage.TypeCNAME, up}), 502},
		"another's address": {answering(record{other, dnsmessage.TypeA, upIP}), 502},
		"another's, too": {answering(record{up, dnsmessage.TypeA, upIP},
			record{other, dnsmessage.TypeA, "10.1.2.3"}), 200},
		"a hint": {answering(record{up, dnsmessage.TypeA, upIP}, record{up, httpsRecord, hint}),
			200},
		"a hint alone":         {answering(record{up, httpsRecord, hint}), 502},
		"a thousand addresses": {answering(many...), 502},
		"a name in a circle":   {loops, 502},
		"half an answer": {func(q []byte) []byte {
			out := answering(many[:2]...)(q)
			return out[:len(out)-3]
		}, 502},
		"another question's": {changed(func(b []byte) { b[13] = 'x' }), 502},
		"another's answer":   {changed(func(b []byte) { b[0] ^= 1 }), 502},
		"cut off":            {changed(func(b []byte) { b[2] |= 2 }), 502},
		"silence":            {func([]byte) []byte { return nil }, 502},
	} {
		t.Run(name, func(t *testing.T) {
			bounds := limits
			if c.status == 502 {
				bounds = strings.Replace(limits, `"2m"`, `"500ms"`, 1) // some never come
			}
			w := newWorld(t, anyTo+bounds)
			host := fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
			w.names.SetRaw(c.raw)
			status, body := w.get("http://up.example.com/", "Connection: close")
			if status != c.status {
				t.Errorf("%d %s", status, body)
			}
			if _, _, n := host.Took(); (n > 0) != (c.status == 200) {
				t.Errorf("the host had %d connections", n)
			}
			intents, _, _ := w.notes.take()
			for _, i := range intents {
				if slices.ContainsFunc(i.Addresses,
					func(a netip.Addr) bool { return a.String() != upIP }) {
					t.Errorf("an intent to dial %v", i.Addresses)
				}
			}
		})
	}
}

// TestSlowNames: a name has so much time, however many servers are silent (T-213).
func TestSlowNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resolver{servers: make([]netip.AddrPort, 100), dial: func(ctx context.Context, _,
			_ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		start := time.Now()
		if _, err := r.lookup(t.Context(), upName); err == nil || time.Since(start) != resolveTime {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}
