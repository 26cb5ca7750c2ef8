// Package libseccomp compiles the filters of a plan outside the jail, so that nothing inside needs
// a compiler or can influence one, and answers the calls that a filter refuses. It is the only user
// of libseccomp-golang, and only jail-shim links it.
package libseccomp

import (
	"fmt"
	"io"
	"slices"
	"syscall"

	lib "github.com/seccomp/libseccomp-golang"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// Compile returns f as struct sock_filter instructions for the native architecture. A call of every
// other architecture, i386 and x32 among them, kills the process. An unknown name is an error: it
// is never skipped.
func Compile(f seccomp.Filter) ([]byte, error) {
	errno, err := errnoOf(f.Errno)
	if err != nil {
		return nil, err
	}
	return compile(f, lib.ActErrno.SetReturnCode(int16(errno)))
}

// CompileTold is Compile for a filter with a Listener. The kernel tells the listener of every call
// that f does not allow, whatever its number, and the call does not happen.
func CompileTold(f seccomp.Filter) ([]byte, error) {
	if _, err := errnoOf(f.Errno); err != nil {
		return nil, err
	}
	return compile(f, lib.ActNotify)
}

// CompileOutside is Compile for a filter below one with a Listener. It refuses a call by asking a
// tracer. A jail has no tracer, so the call fails with ENOSYS, and the listener still gets it: an
// errno would be the stricter answer of the two and hide the call from the listener.
func CompileOutside(f seccomp.Filter) ([]byte, error) {
	if f.Errno != "ENOSYS" {
		return nil, fmt.Errorf("seccomp filter: errno %q: outside of another it can only be ENOSYS",
			f.Errno)
	}
	return compile(f, lib.ActTrace)
}

func compile(f seccomp.Filter, refuse lib.ScmpAction) ([]byte, error) {
	filter, err := lib.NewFilter(refuse)
	if err != nil {
		return nil, fmt.Errorf("seccomp filter: %w", err)
	}
	defer filter.Release()
	if err := filter.SetBadArchAction(lib.ActKillProcess); err != nil {
		return nil, fmt.Errorf("seccomp filter: bad architecture action: %w", err)
	}
	conditional := map[string]bool{}
	for _, c := range f.Only {
		if !slices.Contains(f.Allow, c.Call) {
			return nil, fmt.Errorf("seccomp filter: condition on %q, which is not allowed at all",
				c.Call)
		}
		conditional[c.Call] = true
		if err := addCondition(filter, c); err != nil {
			return nil, err
		}
	}
	for _, name := range f.Allow {
		if conditional[name] {
			continue
		}
		if err := addRule(filter, name, lib.ActAllow); err != nil {
			return nil, err
		}
	}
	for _, fail := range []struct {
		names []string
		errno syscall.Errno
	}{{f.ENOSYS, syscall.ENOSYS}, {f.ENOTSUP, syscall.ENOTSUP}, {f.EINVAL, syscall.EINVAL}} {
		for _, name := range fail.names {
			if slices.Contains(f.Allow, name) {
				return nil, fmt.Errorf("seccomp filter: %q is both allowed and not there", name)
			}
			if err := addRule(filter, name,
				lib.ActErrno.SetReturnCode(int16(fail.errno))); err != nil {
				return nil, err
			}
		}
	}
	return export(filter)
}

func addCondition(filter *lib.ScmpFilter, c seccomp.Condition) error {
	number, err := NumberOf(c.Call)
	if err != nil {
		return err
	}
	var all []lib.ScmpCondition
	for _, b := range c.All() {
		bits, err := lib.MakeCondition(b.Arg, lib.CompareMaskedEqual, b.Mask, b.Value)
		if err != nil {
			return fmt.Errorf("seccomp filter: condition on %q: %w", c.Call, err)
		}
		all = append(all, bits)
	}
	if err := filter.AddRuleConditionalExact(lib.ScmpSyscall(number), lib.ActAllow,
		all); err != nil {
		return fmt.Errorf("seccomp filter: condition on %q: %w", c.Call, err)
	}
	return nil
}

// Check returns an error for the first call of f.Allow that libseccomp does not know. libcontainer
// skips unknown names, so the caller checks a filter before it passes the filter on.
func Check(f seccomp.Filter) error {
	for _, name := range f.Allow {
		if _, err := lib.GetSyscallFromName(name); err != nil {
			return fmt.Errorf("seccomp filter: system call %q: %w", name, err)
		}
	}
	return nil
}

func addRule(filter *lib.ScmpFilter, name string, action lib.ScmpAction) error {
	number, err := NumberOf(name)
	if err != nil {
		return err
	}
	if err := filter.AddRuleExact(lib.ScmpSyscall(number), action); err != nil {
		return fmt.Errorf("seccomp filter: rule for %q: %w", name, err)
	}
	return nil
}

// errnoOf returns the number of one of the two errnos that plans use.
func errnoOf(name string) (syscall.Errno, error) {
	switch name {
	case "EPERM":
		return syscall.EPERM, nil
	case "ENOSYS":
		return syscall.ENOSYS, nil
	}
	return 0, fmt.Errorf("seccomp filter: errno %q: want EPERM or ENOSYS", name)
}

// export uses a file, because libseccomp before 2.6 exports in no other way.
func export(filter *lib.ScmpFilter) ([]byte, error) {
	file, err := sys.ScratchFile("seccomp-filter")
	if err != nil {
		return nil, fmt.Errorf("seccomp filter: %w", err)
	}
	defer file.Close()
	if err := filter.ExportBPF(file); err != nil {
		return nil, fmt.Errorf("seccomp filter: export: %w", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}
