package jailtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/landlock"
)

// audit reports whether the kernel makes audit records. If set is not negative, it first switches
// them on (1) or off (0). It needs root (linux/audit.h).
func audit(set int) (on bool, err error) {
	// get, change and family are AUDIT_GET, AUDIT_SET and NETLINK_AUDIT.
	const get, change, family = 1000, 1001, 9
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, family)
	if err != nil {
		return false, err
	}
	defer syscall.Close(fd)
	ask, kind := make([]byte, 16), uint16(get)
	if set >= 0 {
		kind = change
		ask = append(ask, make([]byte, 40)...)
		// The mask AUDIT_STATUS_ENABLED says which member is set.
		binary.NativeEndian.PutUint32(ask[16:], 1)
		binary.NativeEndian.PutUint32(ask[20:], uint32(set))
	}
	binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
	binary.NativeEndian.PutUint16(ask[4:], kind)
	binary.NativeEndian.PutUint16(ask[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_ACK)
	if err := syscall.Sendto(fd, ask, 0,
		&syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return false, err
	}
	for buf := make([]byte, 9000); ; {
		n, _, err := syscall.Recvfrom(fd, buf, 0)
		if err != nil || n < 24 {
			return on, errors.Join(err, fmt.Errorf("audit: %d bytes", n))
		}
		switch binary.NativeEndian.Uint16(buf[4:]) {
		case get:
			return binary.NativeEndian.Uint32(buf[20:]) != 0, nil
		case syscall.NLMSG_ERROR:
			errno := syscall.Errno(-int32(binary.NativeEndian.Uint32(buf[16:])))
			if errno != 0 {
				return false, errno
			}
			if set >= 0 {
				return set > 0, nil
			}
		}
	}
}

// NeedAudit skips the test if the kernel does not report what Landlock refuses. It switches audit
// on only in a machine that was made for tests, since audit belongs to the whole host.
func NeedAudit(t testing.TB) {
	t.Helper()
	abi, err := landlock.ABI()
	if err != nil {
		t.Skipf("landlock: %v", err)
	}
	if abi < jail.LandlockTells {
		t.Skipf("landlock version %d: reports of refusals need %d", abi, jail.LandlockTells)
	}
	on, err := audit(-1)
	if err != nil {
		t.Skipf("only root, where there is audit, can ask for it: %v", err)
	}
	if on {
		return
	}
	if os.Getenv("JAIL_VM_BUILT") == "" {
		t.Skip("this host's audit is off, and not the test's to switch on; make vm-test has " +
			"machines where it is")
	}
	if _, err := audit(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := audit(0); err != nil {
			t.Error(err)
		}
	})
}
