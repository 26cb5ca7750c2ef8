package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PortRange is the TCP ports from Low to High, both included.
type PortRange struct {
	Low  uint16 `json:"low"`
	High uint16 `json:"high"`
}

// Ports is a set of TCP ports. Empty means none.
type Ports []PortRange

// AllPorts returns every port from 1 to 65535.
func AllPorts() Ports { return Ports{{1, 65535}} }

// OnePort returns the set of one port.
func OnePort(port uint16) Ports { return Ports{{port, port}} }

// Normal sorts the ranges and joins those that touch.
func (p Ports) Normal() Ports {
	sorted := slices.Clone(p)
	slices.SortFunc(sorted, func(a, b PortRange) int { return int(a.Low) - int(b.Low) })
	var out Ports
	for _, r := range sorted {
		r.Low = max(r.Low, 1)
		if r.Low > r.High {
			continue
		}
		if n := len(out); n > 0 && int(r.Low) <= int(out[n-1].High)+1 {
			out[n-1].High = max(out[n-1].High, r.High)
			continue
		}
		out = append(out, r)
	}
	return out
}

// Meet returns the ports in both sets.
func (p Ports) Meet(q Ports) Ports {
	var out Ports
	for _, a := range p.Normal() {
		for _, b := range q.Normal() {
			if low, high := max(a.Low, b.Low), min(a.High, b.High); low <= high {
				out = append(out, PortRange{low, high})
			}
		}
	}
	return out.Normal()
}

// LessEq reports whether each port of p is in q.
func (p Ports) LessEq(q Ports) bool {
	wide := q.Normal()
	return !slices.ContainsFunc(p.Normal(), func(r PortRange) bool {
		return !slices.ContainsFunc(wide, func(w PortRange) bool {
			return w.Low <= r.Low && r.High <= w.High
		})
	})
}

// Has reports whether port is in the set. Port 0 never is.
func (p Ports) Has(port uint16) bool {
	return port != 0 && slices.ContainsFunc(p, func(r PortRange) bool {
		return r.Low <= port && port <= r.High
	})
}

func (p Ports) String() string { return setString(p.Strings()) }

// Strings returns each range as it would be written: 443, 8000-8100, or * for all.
func (p Ports) Strings() []string {
	var out []string
	for _, r := range p.Normal() {
		switch {
		case r == PortRange{1, 65535}:
			out = append(out, "*")
		case r.Low == r.High:
			out = append(out, strconv.Itoa(int(r.Low)))
		default:
			out = append(out, fmt.Sprintf("%d-%d", r.Low, r.High))
		}
	}
	return out
}

// ParsePorts reads "443", "8000-8100" or "*".
func ParsePorts(text string) (Ports, error) {
	if text == "*" {
		return AllPorts(), nil
	}
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	low, lowErr := parsePort(first)
	high, highErr := parsePort(last)
	if lowErr != nil || highErr != nil || low > high {
		return nil, fmt.Errorf(
			"port %q is no number from 1 to 65535, no range of them such as 8000-8100, and no *",
			text)
	}
	return Ports{{low, high}}, nil
}

// parsePort parses a port in digits: no sign, leading zero or service name.
func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return 0, strconv.ErrSyntax
	}
	return uint16(n), nil
}
