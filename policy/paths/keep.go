package paths

import "slices"

// secrets are files and directories of a home that hold keys or personal data, or name what runs.
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

// OfSystem returns which directory of the host's configuration or state holds path, "" for none.
// No toolchain is there, unless it is the home of an account: see [MayHoldHome].
func OfSystem(path string) string {
	for _, dir := range []string{"/etc", "/proc", "/sys", "/dev", "/run", "/var", "/root", "/boot"} {
		if Within(dir, path) {
			return dir
		}
	}
	return ""
}

// MayHoldHome reports whether accounts may have their homes in a directory that OfSystem returns.
func MayHoldHome(dir string) bool { return slices.Contains([]string{"/root", "/run", "/var"}, dir) }
