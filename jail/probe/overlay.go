package probe

import "github.com/jail-sandbox/jail/jail/internal/sys"

// overlay checks whether the kernel has overlayfs, which shadows use.
func overlay() Finding {
	const name = "overlayfs"
	if f, other := onlyRoot(name); other {
		return f
	}
	err := sys.HasFilesystem("overlay")
	switch {
	case err == nil:
		return yes(name, "the kernel has it")
	case sys.NotThere(err):
		return no(name, "modprobe overlay, or boot a kernel with CONFIG_OVERLAY_FS", "%s",
			short(err))
	case sys.Forbidden(err):
		return no(name, letIt, "%s", short(err))
	}
	return unknown(name, "%v", err)
}
