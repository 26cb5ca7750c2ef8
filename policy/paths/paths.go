// Package paths tells which of two clean paths contains the other, and which paths of a host no
// proposal should show. It compares names only; links and mounts are not resolved.
package paths

import (
	"slices"
	"strings"
)

// Within reports whether path is dir or lies below dir.
func Within(dir, path string) bool {
	_, ok := Rel(dir, path)
	return ok
}

// Rel returns the path of path relative to dir: "" for dir itself. ok is false if it is not below
// dir. Both are clean, and both absolute or both relative to the same directory. "/" and "" contain
// every absolute path.
func Rel(dir, path string) (rel string, ok bool) {
	if path == dir {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Join returns the path of rel below dir, the inverse of [Rel].
func Join(dir, rel string) string {
	if rel == "" {
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + rel
}

// secrets are paths in a home that hold keys or personal data, or determine what runs.
var secrets = []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".npmrc",
	".pypirc", ".git-credentials", ".config/gcloud", ".config/gh", ".config/git", ".config/op",
	".config/rclone", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
	".config/microsoft-edge", ".mozilla", ".thunderbird", ".password-store",
	".local/share/keyrings", ".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml",
	".m2/settings-security.xml", ".gradle/gradle.properties", ".pgpass", ".vault-token",
	".terraform.d", ".condarc", ".bash_history", ".zsh_history", ".claude", ".codex"}

// Secrets returns the paths of files and directories below a home that no proposal should show.
func Secrets(home string) []string {
	all := make([]string, len(secrets))
	for i, name := range secrets {
		all[i] = Join(home, name)
	}
	return all
}

// OfSystem returns the directory of the host's configuration or state that contains path, or "". No
// toolchain is there, except in homes of accounts: see [MayHoldHome].
func OfSystem(path string) string {
	for _, dir := range []string{"/etc", "/proc", "/sys", "/dev", "/run", "/var", "/root", "/boot"} {
		if Within(dir, path) {
			return dir
		}
	}
	return ""
}

// MayHoldHome reports whether homes of accounts may be in a directory that OfSystem returned.
func MayHoldHome(dir string) bool { return slices.Contains([]string{"/root", "/run", "/var"}, dir) }
