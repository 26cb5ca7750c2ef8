package fetch

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// hostAddresses knows the addresses of this host. It lists them again after the kernel has reported
// a change. The kernel reports a change before the call that makes it returns (rtnetlink(7)), so
// checking for reports is as good as listing each time, and costs one system call.
type hostAddresses struct {
	mu sync.Mutex
	// fd is the netlink socket that receives changes.
	fd    int
	known bool
	list  map[netip.Addr]bool
}

// theHost has the addresses of the daemon's host.
var theHost hostAddresses

// addressGroups are the groups of rtnetlink(7) that report changes of addresses.
const addressGroups = 0x10 | 0x100 // RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR

// any returns a text if one of the addresses is this host's, or if the host's addresses are not
// known.
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
	fd, err := syscall.Socket(syscall.AF_NETLINK,
		syscall.SOCK_RAW|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, syscall.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	if err := syscall.Bind(fd,
		&syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: addressGroups}); err != nil {
		return errors.Join(fmt.Errorf("netlink: %w", err), syscall.Close(fd))
	}
	h.fd, h.known, h.list = fd, true, nil
	return nil
}

// changed receives the kernel's reports since the last call. A report that overflowed the buffer
// counts as a change.
func (h *hostAddresses) changed() (bool, error) {
	changed := false
	// A longer report is cut: its arrival is enough.
	for buf := make([]byte, 512); ; {
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

// forget makes the next request list the addresses anew.
func (h *hostAddresses) forget(err error) error {
	h.known, h.list = false, nil
	return errors.Join(err, syscall.Close(h.fd))
}
