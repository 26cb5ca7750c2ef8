package profiles

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// accounts has the texts of passwd(5), group(5) and nsswitch.conf(5) of this host.
type accounts struct{ passwd, group, nsswitch string }

// hostAccounts reads the files. One that cannot be read is empty, and then no group is private.
func hostAccounts() accounts {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return string(text)
	}
	return accounts{read("/etc/passwd"), read("/etc/group"), read("/etc/nsswitch.conf")}
}

// isPrivate reports whether the group gid holds the user uid and nobody else, as the group that
// useradd makes for each user does. It returns false if accounts come from other sources than the
// files, such as a directory service.
func (a accounts) isPrivate(gid, uid uint32) bool {
	if !a.filesOnly() {
		return false
	}
	user, known := "", false
	for name, ids := range rows(a.passwd, 4) {
		switch {
		case ids[2] == id(uid):
			user = name
		case ids[3] == id(gid):
			// It is the first group of somebody else.
			return false
		}
	}
	for _, ids := range rows(a.group, 4) {
		if ids[2] != id(gid) {
			continue
		}
		known = true
		for _, member := range strings.FieldsFunc(ids[3], func(r rune) bool { return r == ',' }) {
			if member != user {
				return false
			}
		}
	}
	return known && user != ""
}

// filesOnly reports whether nsswitch.conf(5) takes users and groups only from this host's files and
// from systemd, whose users have groups of their own.
func (a accounts) filesOnly() bool {
	for line := range strings.Lines(a.nsswitch) {
		line, _, _ = strings.Cut(line, "#")
		database, sources, ok := strings.Cut(line, ":")
		if !ok || !slices.Contains([]string{"passwd", "group", "initgroups"},
			strings.TrimSpace(database)) {
			continue
		}
		for _, source := range strings.Fields(sources) {
			if !slices.Contains([]string{"files", "compat", "systemd"}, source) {
				return false
			}
		}
	}
	return true
}

// rows yields the first field and all fields of each line that has at least n fields.
func rows(text string, n int) func(yield func(name string, fields []string) bool) {
	return func(yield func(string, []string) bool) {
		for line := range strings.Lines(text) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			if len(fields) >= n && !yield(fields[0], fields) {
				return
			}
		}
	}
}

func id(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// nobody is the uid that the kernel shows for owners without a mapping in the user namespace
// (proc_sys_kernel(5), overflowuid).
const nobody = 65534

// oneID reports whether this process is in a user namespace that maps only its own user, as a
// user's daemon is. All other owners then appear as nobody; CheckOwners, called outside before,
// tells them apart.
var oneID = sync.OnceValue(func() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))
	return err == nil && os.Geteuid() != 0 && len(fields) == 3 && fields[2] == "1"
})

func unnamed(uid uint32) bool { return uid == nobody && oneID() }

// CheckOwners refuses a directory that somebody other than root and the caller could change or
// replace. It returns nil if the directory does not exist.
func CheckOwners(dir string) error {
	if err := TrustDirectory(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
