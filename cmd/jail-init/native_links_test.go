package main_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// linked gives programs what a policy with the group loopback gives them.
func linked(s *jailtest.Setup) {
	s.Plan.InnerFilter = seccomp.NewFilter(append(s.Plan.InnerFilter.Groups, "loopback",
		"links")...)
	s.Plan.OuterFilter = seccomp.NewOuterFilter(append(s.Plan.OuterFilter.Groups, "loopback",
		"links")...)
	s.Plan.Landlock.Network = true
}

// TestNativeLinks: a program with the jail's own loopback to itself lists its interfaces and sends
// datagrams to itself. It opens no other kind of socket, changes no address, route or interface,
// and reaches nobody outside. The control beside each is the same where it must work: with every
// socket, with the capability, or without the network namespace.
//
// T-070 to T-074.
func TestNativeLinks(t *testing.T) {
	b := newBed(t)
	host, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	go echo(host)
	reach := fmt.Sprintf("datagram_host:%d", host.LocalAddr().(*net.UDPAddr).Port)
	const eperm = int(syscall.EPERM)
	attacks := []struct {
		name string
		want int
	}{
		{"list_links", 0}, {"datagram_own", 0}, {"netlink_datagram", 0},
		{"netlink_diag", eperm}, {"netlink_xfrm", eperm}, {"netlink_audit", eperm},
		{"netlink_filter", eperm}, {"netlink_uevent", eperm}, {"netlink_generic", eperm},
		{"packet", eperm}, {"raw", eperm}, {"ping", eperm}, {"udplite", eperm},
		{"unix_datagram", eperm}, {"vsock", eperm},
		{"add_address", eperm}, {"add_route", eperm}, {"change_link", eperm}, {"new_link", eperm},
		{"datagram_out", int(syscall.ENETUNREACH)},
		{"datagram_everybody", int(syscall.ENETUNREACH)},
		{reach, int(syscall.ECONNREFUSED)},
	}
	var names []string
	for _, a := range attacks {
		names = append(names, a.name)
	}
	said := "\n" + b.attack(t, names, false, linked).said
	for _, a := range attacks {
		if !strings.Contains(said, fmt.Sprintf("\n%s %d\n", a.name, a.want)) {
			t.Errorf("%s does not end with %d: %s", a.name, a.want, said)
		}
	}
	control := func(names []string, change func(*jailtest.Setup)) {
		t.Helper()
		// A second name has the program say how each went.
		names = append(names, "list_links")
		said := "\n" + b.attack(t, names, false, func(s *jailtest.Setup) {
			linked(s)
			change(s)
		}).said
		for _, name := range names {
			if !strings.Contains(said, fmt.Sprintf("\n%s 0\n", name)) {
				t.Errorf("control: %s does not work: %s", name, said)
			}
		}
	}
	// Of those that every kernel has.
	control([]string{"netlink_uevent", "netlink_generic", "unix_datagram", "udplite"},
		allowing("socket"))
	control([]string{"add_address", "add_route", "change_link"}, func(s *jailtest.Setup) {
		s.Plan.Capabilities = []string{"CAP_NET_ADMIN"}
	})
	control([]string{reach}, func(s *jailtest.Setup) {
		s.Plan.Namespaces = slices.DeleteFunc(s.Plan.Namespaces,
			func(n jail.Namespace) bool { return n == "net" })
	})
}

// echo answers every datagram with itself until the socket is closed.
func echo(conn *net.UDPConn) {
	text := make([]byte, 16)
	for {
		n, from, err := conn.ReadFromUDP(text)
		if err != nil {
			return
		}
		// Somebody who does not read it has lost it.
		_, _ = conn.WriteToUDP(text[:n], from)
	}
}
