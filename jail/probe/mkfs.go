package probe

import "os"

// mkfsPaths are the only places of mkfs.ext4 that jail trusts: anybody can change a PATH.
var mkfsPaths = []string{"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4",
	"/bin/mkfs.ext4"}

// mkfs finds the program that makes the file systems of shadows.
func mkfs() Finding {
	const name = "mkfs.ext4"
	for _, p := range mkfsPaths {
		if _, err := os.Stat(p); err == nil {
			return yes(name, "%s", p)
		}
	}
	return no(name, "install e2fsprogs", "it is nowhere that programs of the system are")
}
