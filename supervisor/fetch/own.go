package fetch

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// A hostAddresses knows the addresses of this host. It asks for all of them when the kernel has said that they changed: it says so before whoever
// changed them goes on (rtnetlink(7)), so that looking whether it did is as good as asking each time, and costs a request one call that finds nothing.
type hostAddresses struct {
	mu    sync.Mutex
	fd    int // a socket to which the kernel tells changes, once known
	known bool
	list  map[netip.Addr]bool
}

// theHost is the daemon's.
var theHost hostAddresses

// Groups of rtnetlink(7) that are told of addresses.
const addressGroups = 0x10 | 0x100 // RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR

// any says that one of the addresses is this host's, if one is, and why it is not known, if it is not.
func (h *hostAddresses) any(addrs []netip.Addr) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refresh(); err != nil {
		return "the addresses of this host are not known: " + err.Error()
	}
	for _, a := range addrs {
		if h.list[a.Unmap().WithZone("")] {
			return "an address of this host"
		}
	}
	return ""
}

func (h *hostAddresses) refresh() error {
	if !h.known {
		if err := h.listen(); err != nil {
			return err
		}
	}
	changed, err := h.changed()
	if err != nil {
		return h.forget(err)
	}
	if !changed && h.list != nil {
		return nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return h.forget(err)
	}
	list := make(map[netip.Addr]bool, len(own))
	for _, o := range own {
		prefix, err := netip.ParsePrefix(o.String())
		if err != nil {
			return h.forget(err)
		}
		list[prefix.Addr().Unmap().WithZone("")] = true
	}
	h.list = list
	return nil
}

func (h *hostAddresses) listen() error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, syscall.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: addressGroups}); err != nil {
		return errors.Join(fmt.Errorf("netlink: %w", err), syscall.Close(fd))
	}
	h.fd, h.known, h.list = fd, true, nil
	return nil
}

// changed takes what the kernel has told since it was asked last. More than its buffer holds is a change too.
func (h *hostAddresses) changed() (bool, error) {
	changed := false
	for buf := make([]byte, 512); ; { // what is longer is cut: that there was something is enough
		_, _, err := syscall.Recvfrom(h.fd, buf, 0)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return changed, nil
		case errors.Is(err, syscall.EINTR):
		case err == nil, errors.Is(err, syscall.ENOBUFS):
			changed = true
		default:
			return false, fmt.Errorf("netlink: %w", err)
		}
	}
}

// forget lets the next request begin anew.
func (h *hostAddresses) forget(err error) error {
	h.known, h.list = false, nil
	return errors.Join(err, syscall.Close(h.fd))
}
