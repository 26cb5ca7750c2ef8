package verify

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// kindOf maps the plan's namespaces to their names in /proc.
var kindOf = map[jail.Namespace]string{"user": "user", "mount": "mnt", "pid": "pid", "net": "net",
	"ipc": "ipc", "uts": "uts", "cgroup": "cgroup"}

// Descriptions of a namespace in findings.
const (
	ownNamespace     = "the jail's own"
	sessionNamespace = "the session's"
)

func (v *viewer) namespaces() error {
	for _, name := range v.Plan.Namespaces {
		kind, ok := kindOf[name]
		if !ok {
			return fmt.Errorf("namespace %q: unknown kind", name)
		}
		inside, err := os.Readlink(proc(v.PID, "ns/"+kind))
		if err != nil {
			return err
		}
		host, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return err
		}
		want, strangers := ownNamespace, slices.Concat(v.others, v.peers)
		if name == "net" && (v.Plan.NetworkOf != "" || len(v.peers) > 0) {
			want, strangers = sessionNamespace, v.others
		}
		got := want
		if want == sessionNamespace && !v.sharesNetwork(inside) {
			got = "not that of the session's other jails"
		}
		if inside == host {
			got = "the host's"
		}
		for _, other := range strangers {
			if theirs, err := os.Readlink(proc(other, "ns/"+kind)); err == nil && theirs == inside {
				got = fmt.Sprintf("that of process %d too", other)
			}
		}
		v.is("namespaces", string(name), want, got)
	}
	return v.strangers()
}

// sharesNetwork reports whether all live peers are in the network namespace inside. Without live
// peers it reports true only for the jail that holds the session's network.
func (v *viewer) sharesNetwork(inside string) bool {
	found := false
	for _, peer := range v.peers {
		theirs, err := os.Readlink(proc(peer, "ns/net"))
		if err == nil && theirs != inside {
			return false
		}
		found = found || err == nil
	}
	return found || v.Plan.NetworkOf == ""
}

// strangers checks that no process outside of the jail's cgroup is in its pid namespace: nothing
// joins a jail.
func (v *viewer) strangers() error {
	own, err := os.Readlink(proc(v.PID, "ns/pid"))
	if err != nil {
		return err
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		return err
	}
	members, err := v.members()
	if err != nil {
		return err
	}
	var found []string
	for _, link := range links {
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		if ns, err := os.Readlink(link); err == nil && ns == own && !slices.Contains(members, pid) {
			found = append(found, strconv.Itoa(pid))
		}
	}
	v.is("namespaces", "processes that joined", "none", orNone(found))
	return nil
}

func orNone(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// ids checks the id maps of the jail and the owner of its user namespace.
func (v *viewer) ids() error {
	for _, m := range []struct {
		name string
		base uint32
	}{{"uid_map", v.Plan.IDs.Base}, {"gid_map", v.Plan.IDs.HostGroup()}} {
		name, base := m.name, m.base
		want := []string{fmt.Sprintf("0 %d %d", base, v.Plan.IDs.Size)}
		for _, e := range v.Plan.IDs.Extra {
			want = append(want, fmt.Sprintf("%d %d 1", e.Inside, e.Host))
		}
		text, err := os.ReadFile(proc(v.PID, name))
		if err != nil {
			return err
		}
		var got []string
		for line := range strings.Lines(string(text)) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		v.is("ids", name, strings.Join(want, ", "), strings.Join(got, ", "))
	}
	owner, err := sys.UserNSOwner(v.PID)
	if err != nil {
		return err
	}
	v.is("ids", "owner of the user namespace", strconv.FormatUint(uint64(v.Plan.IDs.Owner), 10),
		strconv.FormatUint(uint64(owner), 10))
	return nil
}

// ownGroups returns the expected supplementary groups of a jail: none, except in an ordinary user's
// jail, since users cannot drop their groups (setgroups(2)).
func ownGroups(ids jail.IDs) (string, error) {
	if !ids.User {
		return "", nil
	}
	all, err := os.Getgroups()
	texts := make([]string, len(all))
	for i, g := range all {
		texts[i] = strconv.Itoa(g)
	}
	return strings.Join(texts, " "), err
}

// filters returns the number of filters on each thread: the outer one, the ceiling's and the inner
// one.
func (v *viewer) filters() int {
	if v.Plan.Ceiling != nil {
		return 3
	}
	return 2
}

// threads checks every thread of every process of the jail.
func (v *viewer) threads() error {
	uid, gid := v.Plan.IDs.Host()
	user, group := strconv.FormatUint(uint64(uid), 10), strconv.FormatUint(uint64(gid), 10)
	groups, err := ownGroups(v.Plan.IDs)
	if err != nil {
		return err
	}
	nnp := "0"
	if v.Plan.NoNewPrivileges {
		nnp = "1"
	}
	none := strings.Repeat("0", 16)
	want := []struct{ layer, key, value string }{
		{"ids", "Uid", strings.Repeat(user+" ", 3) + user},
		{"ids", "Gid", strings.Repeat(group+" ", 3) + group}, {"ids", "Groups", groups},
		{"capabilities", "CapInh", none}, {"capabilities", "CapPrm", none},
		{"capabilities", "CapEff", none}, {"capabilities", "CapBnd", none},
		{"capabilities", "CapAmb", none}, {"capabilities", "NoNewPrivs", nnp},
		{"seccomp", "Seccomp", "2"}, {"seccomp", "Seccomp_filters", strconv.Itoa(v.filters())},
		{"process", "TracerPid", "0"},
	}
	tasks, err := v.tasks()
	if err != nil {
		return err
	}
	for _, w := range want {
		var got []string
		for task, fields := range tasks {
			if fields[w.key] != w.value {
				got = append(got, fmt.Sprintf("%q on thread %s", fields[w.key], task))
			}
		}
		slices.Sort(got)
		what := w.key + " of each thread"
		if len(got) == 0 {
			v.is(w.layer, what, w.value, w.value)
			continue
		}
		v.differs(w.layer, what, w.value, strings.Join(got, ", "))
	}
	return nil
}

// tasks returns the status of each thread.
func (v *viewer) tasks() (map[string]map[string]string, error) {
	members, err := v.members()
	if err != nil {
		return nil, err
	}
	all := map[string]map[string]string{}
	for _, pid := range append(members, v.PID) {
		files, err := filepath.Glob(proc(pid, "task/*/status"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				// The thread has ended.
				continue
			}
			fields := map[string]string{}
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(line, ":")
				fields[key] = strings.Join(strings.Fields(value), " ")
			}
			all[filepath.Base(filepath.Dir(file))] = fields
		}
	}
	if len(all) == 0 {
		return nil, ErrGone
	}
	return all, nil
}

// root checks the root and the working directory of the process.
func (v *viewer) root() error {
	for what, name := range map[string]string{"root": "root", "working directory": "cwd"} {
		to, err := os.Readlink(proc(v.PID, name))
		if err != nil {
			return err
		}
		v.is("mounts", what, "/", to)
	}
	inside, err := os.Stat(proc(v.PID, "root"))
	if err != nil {
		return err
	}
	host, err := os.Stat("/")
	if err != nil {
		return err
	}
	if os.SameFile(inside, host) {
		v.differs("mounts", "root", "a root of the jail's own", "the host's")
	}
	return nil
}

// network checks that the loopback device is the only one.
func (v *viewer) network() error {
	if !slices.Contains(v.Plan.Namespaces, "net") {
		return nil
	}
	text, err := os.ReadFile(proc(v.PID, "net/dev"))
	if err != nil {
		return err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	v.is("namespaces", "network devices", "lo", orNone(names))
	return nil
}

// descriptors checks that each open descriptor is the jail's own or one of its streams. The mount
// of a file or directory decides: a mount that is not in the jail's mount table is the host's.
func (v *viewer) descriptors() error {
	table, err := v.mountIDs()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(proc(v.PID, "fd"))
	if err != nil {
		return err
	}
	sockets := 0
	var wrong []string
	for _, e := range entries {
		to, err := os.Readlink(proc(v.PID, "fd/"+e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			// Closed meanwhile.
			continue
		}
		if err != nil {
			return err
		}
		kind, _, _ := strings.Cut(to, ":")
		switch {
		case kind == "pipe", to == "anon_inode:[eventpoll]", to == "anon_inode:[eventfd]",
			strings.HasPrefix(to, "/memfd:"):
		case kind == "socket":
			sockets++
		case !table[v.mountOf(e.Name())]:
			wrong = append(wrong, e.Name()+" → "+to)
		}
	}
	v.is("descriptors", "of the host", "none", orNone(wrong))
	if sockets > 1 {
		v.differs("descriptors", "sockets", "1", strconv.Itoa(sockets))
	} else {
		v.is("descriptors", "sockets", "1 at most", "1 at most")
	}
	return nil
}

// mountOf returns the id of the mount that an open file is on.
func (v *viewer) mountOf(fd string) string {
	text, err := os.ReadFile(proc(v.PID, "fdinfo/"+fd))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id)
		}
	}
	return ""
}
