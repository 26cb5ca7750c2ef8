package fetch

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Bounds of name resolution.
const (
	// resolveTime bounds the resolution of one name, with all attempts.
	resolveTime = 5 * time.Second
	attemptTime = 2 * time.Second
	// maxAddresses bounds the addresses of one name.
	maxAddresses = 16
	// maxAnswer is the size of a UDP answer that queries announce, in bytes.
	maxAnswer    = 4 << 10
	maxAnswerTCP = 64 << 10
	// maxAliases bounds a chain of CNAMEs.
	maxAliases = 8
)

// errNoAddress is returned for a name without addresses.
var errNoAddress = errors.New("the name has no address")

// resolver resolves names only by its name servers: it uses no hosts file, no search list and no
// other records. The zero value has no server and resolves nothing.
type resolver struct {
	servers []netip.AddrPort
	// dial has the signature of net.Dialer.DialContext.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// lookup returns the addresses of a name, IPv4 first. More than maxAddresses are an error.
func (r *resolver) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	type answer struct {
		addrs []netip.Addr
		err   error
	}
	six := make(chan answer, 1)
	go func() {
		addrs, err := r.ask(ctx, name, dnsmessage.TypeAAAA)
		six <- answer{addrs, err}
	}()
	all, err := r.ask(ctx, name, dnsmessage.TypeA)
	other := <-six
	if err != nil || other.err != nil {
		// Half of an answer could lack the address that would be refused.
		return nil, errors.Join(err, other.err)
	}
	all = append(all, other.addrs...)
	switch {
	case len(all) == 0:
		return nil, errNoAddress
	case len(all) > maxAddresses:
		return nil, fmt.Errorf("the name has %d addresses, more than %d", len(all), maxAddresses)
	}
	return all, nil
}

func (r *resolver) ask(ctx context.Context, name string, kind dnsmessage.Type) ([]netip.Addr,
	error) {
	if len(r.servers) == 0 {
		return nil, errors.New("there is no name server")
	}
	var err error
	for range 2 {
		for _, server := range r.servers {
			var addrs []netip.Addr
			if addrs, err = r.askOne(ctx, server, name, kind); err == nil {
				return addrs, nil
			}
			if _, ok := errors.AsType[*answerError](err); ok || ctx.Err() != nil {
				return nil, err
			}
		}
	}
	return nil, err
}

// answerError is a final answer without addresses: another query would not change it.
type answerError struct{ why string }

func (e *answerError) Error() string { return e.why }

func (r *resolver) askOne(ctx context.Context, server netip.AddrPort, name string,
	kind dnsmessage.Type) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	query, id, err := newQuery(name, kind)
	if err != nil {
		return nil, err
	}
	addrs, truncated, err := r.exchange(ctx, "udp", server, query, id, name, kind)
	if truncated {
		addrs, _, err = r.exchange(ctx, "tcp", server, query, id, name, kind)
	}
	return addrs, err
}

func newQuery(name string, kind dnsmessage.Type) (query []byte, id uint16, err error) {
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, 0, fmt.Errorf("name %s: %w", name, err)
	}
	var seed [2]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, 0, err
	}
	id = binary.BigEndian.Uint16(seed[:])
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, RecursionDesired: true})
	b.EnableCompression()
	question := dnsmessage.Question{Name: n, Type: kind, Class: dnsmessage.ClassINET}
	var edns dnsmessage.ResourceHeader
	err = errors.Join(edns.SetEDNS0(maxAnswer, dnsmessage.RCodeSuccess, false), b.StartQuestions(),
		b.Question(question), b.StartAdditionals(),
		b.OPTResource(edns, dnsmessage.OPTResource{}))
	if err != nil {
		return nil, 0, err
	}
	query, err = b.Finish()
	return query, id, err
}

// exchange sends a query and returns the addresses in its answer. It ignores other messages.
func (r *resolver) exchange(ctx context.Context, network string, server netip.AddrPort,
	query []byte, id uint16, name string, kind dnsmessage.Type) (addrs []netip.Addr, truncated bool,
	err error) {
	conn, err := r.dial(ctx, network, server.String())
	if err != nil {
		return nil, false, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, false, err
		}
	}
	if network == "tcp" {
		query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	}
	if _, err := conn.Write(query); err != nil {
		return nil, false, err
	}
	buf := make([]byte, maxAnswerTCP)
	for {
		n, err := readAnswer(conn, network, buf)
		if err != nil {
			return nil, false, fmt.Errorf("name server %s: %w", server, err)
		}
		addrs, truncated, ours, err := parseAnswer(buf[:n], id, name, kind)
		if ours {
			return addrs, truncated && network == "udp", err
		}
		if network == "tcp" {
			return nil, false, fmt.Errorf("name server %s: it answers another question", server)
		}
	}
}

func readAnswer(conn net.Conn, network string, buf []byte) (int, error) {
	if network == "udp" {
		return conn.Read(buf)
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return 0, err
	}
	return io.ReadFull(conn, buf[:binary.BigEndian.Uint16(size[:])])
}

// parseAnswer parses a message. ours reports whether it is the answer to the query.
func parseAnswer(msg []byte, id uint16, name string, kind dnsmessage.Type) (addrs []netip.Addr,
	truncated, ours bool, err error) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.ID != id || !h.Response {
		return nil, false, false, err
	}
	q, err := p.AllQuestions()
	if err != nil || len(q) != 1 || q[0].Type != kind || q[0].Class != dnsmessage.ClassINET ||
		!sameName(q[0].Name.String(), name+".") {
		return nil, false, false, err
	}
	switch {
	case h.Truncated:
		return nil, true, true, &answerError{"the answer of the name server is cut off"}
	case h.RCode == dnsmessage.RCodeNameError:
		return nil, false, true, &answerError{"the name does not exist"}
	case h.RCode != dnsmessage.RCodeSuccess:
		return nil, false, true, fmt.Errorf("the name server answers %s", h.RCode)
	}
	addrs, err = answers(&p, name+".")
	if err != nil {
		err = &answerError{"the answer of the name server cannot be read: " + err.Error()}
	}
	return addrs, false, true, err
}

// answers returns the addresses of a name. It follows aliases within the same answer.
func answers(p *dnsmessage.Parser, name string) ([]netip.Addr, error) {
	all, err := p.AllAnswers()
	if err != nil {
		return nil, err
	}
	names := []string{name}
	for range maxAliases {
		grown := false
		for _, a := range all {
			alias, ok := a.Body.(*dnsmessage.CNAMEResource)
			if ok && has(names, a.Header.Name.String()) && !has(names, alias.CNAME.String()) {
				names, grown = append(names, alias.CNAME.String()), true
			}
		}
		if !grown {
			break
		}
	}
	var addrs []netip.Addr
	for _, a := range all {
		if !has(names, a.Header.Name.String()) {
			continue
		}
		switch body := a.Body.(type) {
		case *dnsmessage.AResource:
			addrs = append(addrs, netip.AddrFrom4(body.A))
		case *dnsmessage.AAAAResource:
			addrs = append(addrs, netip.AddrFrom16(body.AAAA))
		}
	}
	return addrs, nil
}

func has(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return sameName(n, name) })
}

// sameName compares names without regard to ASCII case. Names on the wire may have any bytes.
func sameName(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		x, y := a[i], b[i]
		if x >= 'A' && x <= 'Z' {
			x += 'a' - 'A'
		}
		if y >= 'A' && y <= 'Z' {
			y += 'a' - 'A'
		}
		if x != y {
			return false
		}
	}
	return true
}
