// Package seccomp compiles a plan's filters outside the jail, so that nothing inside needs a compiler or can influence one.
// It is the only user of libseccomp-golang and is linked only into jail-shim.
package seccomp

import (
	"fmt"
	"io"
	"slices"
	"syscall"

	libseccomp "github.com/seccomp/libseccomp-golang"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Compile returns f as struct sock_filter instructions for the native architecture. Every other architecture's calls, i386 and x32
// among them, kill the process. A name that is not known is an error: it is never skipped.
func Compile(f jail.Filter) ([]byte, error) {
	errno, err := errnoOf(f.Errno)
	if err != nil {
		return nil, err
	}
	return compile(f, libseccomp.ActErrno.SetReturnCode(int16(errno)))
}

// CompileTold is Compile for a filter with a Listener: what f does not allow does not happen and is told to it, whatever its number.
func CompileTold(f jail.Filter) ([]byte, error) {
	if _, err := errnoOf(f.Errno); err != nil {
		return nil, err
	}
	return compile(f, libseccomp.ActNotify)
}

// CompileOutside is Compile for a filter below one whose listener is to be told of what both refuse: it refuses by asking a tracer, of which there is
// none, so that the call fails with ENOSYS and nobody is kept from telling.
func CompileOutside(f jail.Filter) ([]byte, error) {
	if f.Errno != "ENOSYS" {
		return nil, fmt.Errorf("seccomp filter: errno %q: outside of another it can only be ENOSYS", f.Errno)
	}
	return compile(f, libseccomp.ActTrace)
}

func compile(f jail.Filter, refuse libseccomp.ScmpAction) ([]byte, error) {
	filter, err := libseccomp.NewFilter(refuse)
	if err != nil {
		return nil, fmt.Errorf("seccomp filter: %w", err)
	}
	defer filter.Release()
	if err := filter.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		return nil, fmt.Errorf("seccomp filter: bad architecture action: %w", err)
	}
	conditional := map[string]bool{}
	for _, c := range f.Only {
		if !slices.Contains(f.Allow, c.Call) {
			return nil, fmt.Errorf("seccomp filter: condition on %q, which is not allowed at all", c.Call)
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
		if err := addRule(filter, name, libseccomp.ActAllow); err != nil {
			return nil, err
		}
	}
	for _, name := range f.ENOSYS {
		if slices.Contains(f.Allow, name) {
			return nil, fmt.Errorf("seccomp filter: %q is both allowed and not there", name)
		}
		if err := addRule(filter, name, libseccomp.ActErrno.SetReturnCode(int16(syscall.ENOSYS))); err != nil {
			return nil, err
		}
	}
	return export(filter)
}

func addCondition(filter *libseccomp.ScmpFilter, c jail.Condition) error {
	number, err := NumberOf(c.Call)
	if err != nil {
		return err
	}
	var all []libseccomp.ScmpCondition
	for _, b := range append([]jail.Bits{{Arg: c.Arg, Mask: c.Mask, Value: c.Value}}, c.And...) {
		bits, err := libseccomp.MakeCondition(b.Arg, libseccomp.CompareMaskedEqual, b.Mask, b.Value)
		if err != nil {
			return fmt.Errorf("seccomp filter: condition on %q: %w", c.Call, err)
		}
		all = append(all, bits)
	}
	if err := filter.AddRuleConditionalExact(libseccomp.ScmpSyscall(number), libseccomp.ActAllow, all); err != nil {
		return fmt.Errorf("seccomp filter: condition on %q: %w", c.Call, err)
	}
	return nil
}

// Check returns an error for the first name that f allows and libseccomp does not know, for who hands a filter to a library that skips those.
func Check(f jail.Filter) error {
	for _, name := range f.Allow {
		if _, err := libseccomp.GetSyscallFromName(name); err != nil {
			return fmt.Errorf("seccomp filter: system call %q: %w", name, err)
		}
	}
	return nil
}

func addRule(filter *libseccomp.ScmpFilter, name string, action libseccomp.ScmpAction) error {
	number, err := NumberOf(name)
	if err != nil {
		return err
	}
	if err := filter.AddRuleExact(libseccomp.ScmpSyscall(number), action); err != nil {
		return fmt.Errorf("seccomp filter: rule for %q: %w", name, err)
	}
	return nil
}

// errnoOf knows the two answers that plans give.
func errnoOf(name string) (syscall.Errno, error) {
	switch name {
	case "EPERM":
		return syscall.EPERM, nil
	case "ENOSYS":
		return syscall.ENOSYS, nil
	}
	return 0, fmt.Errorf("seccomp filter: errno %q: want EPERM or ENOSYS", name)
}

// export goes through a file because libseccomp before 2.6 has no other way.
func export(filter *libseccomp.ScmpFilter) ([]byte, error) {
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
