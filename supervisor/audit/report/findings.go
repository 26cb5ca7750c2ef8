package report

import (
	"fmt"
	"path"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// exitFailed is the exit code of a run that failed by a fault of jail. A run with an error and
// another exit code was refused.
const exitFailed = 125

// findings returns the points in a run that a reviewer should look at.
func (run *Run) findings() []Finding {
	var list []Finding
	say := func(grave bool, record uint64, format string, args ...any) {
		list = append(list,
			Finding{Grave: grave, Text: fmt.Sprintf(format, args...), Record: record})
	}
	secrets := 0
	for _, f := range run.Touched {
		if !secretPath(f.Path) || f.Kind == "exec" {
			continue
		}
		if secrets++; secrets > maxSecrets {
			continue
		}
		what := map[string]string{"open": "opened", "write": "wrote"}[f.Kind]
		text := fmt.Sprintf("%s %s what looks like a secret: %s", f.Program, what, f.Path)
		if f.Program == "" {
			text = fmt.Sprintf("it %s what looks like a secret: %s", what, f.Path)
		}
		if f.Count > 1 {
			text += fmt.Sprintf(", %d times", f.Count)
		}
		list = append(list, Finding{Grave: true, Text: text, Record: f.Record, secret: true})
	}
	if secrets > maxSecrets {
		list = append(list, Finding{Grave: true,
			Text:   fmt.Sprintf("and so with %d more that look like secrets", secrets-maxSecrets),
			Record: run.first, secret: true})
	}
	if run.End == nil {
		say(true, run.first, "run %s: the log does not say how it ended", run.ID)
	} else if e := run.End; e.Error != "" && e.ExitCode != exitFailed {
		say(false, run.first, "run %s was refused: %s", run.ID, e.Error)
	} else if e.Error != "" {
		say(true, run.first, "run %s: jail itself failed: %s", run.ID, e.Error)
	}
	if len(run.Warnings) > 0 {
		say(false, run.first, "the policy is wide: %s", strings.Join(run.Warnings, "; "))
	}
	for _, r := range run.Refused {
		what := fmt.Sprintf("%s refused %s (%s)", r.Layer, r.What, r.Rule)
		if r.Count > 1 {
			what += fmt.Sprintf(", %d times", r.Count)
		}
		say(secret(r.What) || r.Layer == "seccomp", r.Record, "%s", what)
		list[len(list)-1].secret = secret(r.What)
	}
	hosts := map[string]bool{}
	for _, f := range run.Fetches {
		host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(after(f.What, " "),
			"https://"), "http://"), "/")
		switch {
		case f.Decision == "denied":
			say(true, f.Record, "fetch refused: %s (%s)", f.What, f.Rule)
		case !hosts[host]:
			hosts[host] = true
			say(false, f.Record, "it reached %s", host)
		}
	}
	for _, l := range run.Limits {
		say(false, run.first, "it met the limit %s: %d of %d", l.Name, l.Peak, l.Limit)
	}
	for _, file := range run.Files {
		words := strings.SplitN(file, " ", 3)
		if len(words) != 3 {
			continue
		}
		if looksSecret(words[2]) {
			say(true, run.first, "it changed what looks like a secret: %s", words[2])
			list[len(list)-1].secret = true
		}
		if risk, held := policy.Protected(words[2]); held {
			say(true, run.first, "it changed a protected name (%s): %s", risk.Reason, words[2])
		} else if risk, flagged := policy.Flagged(words[2]); flagged {
			say(false, run.first, "it changed a name that matters (%s): %s", risk.Reason, words[2])
		}
	}
	for _, d := range run.Decisions {
		switch {
		case d.Error != "":
			say(true, d.Record, "not %s: %s", d.What, d.Error)
		case d.Protected:
			say(true, d.Record, "uid %d committed protected names by an explicit yes", d.UID)
		case strings.HasSuffix(d.What, "(begun)"):
			say(true, d.Record, "%s, and the log does not say how it ended", d.What)
		}
	}
	return list
}

// maxSecrets bounds the files that look like secrets and are listed singly.
const maxSecrets = 20

// secret reports whether a refusal such as "read /etc/shadow" is about a possible secret.
func secret(what string) bool { return looksSecret(after(what, " ")) }

// secretPath reports whether an opened file looks like a secret. It ignores the host's programs and
// certificates, which every program opens.
func secretPath(p string) bool {
	for _, dir := range []string{"/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/", "/proc/", "/sys/",
		"/dev/", "/etc/ssl/certs/", "/etc/ca-certificates/"} {
		if strings.HasPrefix(p, dir) {
			return false
		}
	}
	return looksSecret(p)
}

func looksSecret(what string) bool {
	name := strings.ToLower(path.Base(what))
	for _, part := range []string{"shadow", "id_rsa", "id_ed25519", "id_ecdsa", ".pem", ".key",
		".env", "credentials", "token", "secret", "password", ".netrc", ".npmrc", ".pypirc",
		"kubeconfig"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return strings.Contains(what, "/.ssh/") || strings.Contains(what, "/.aws/") ||
		strings.Contains(what, "/.gnupg/")
}

func after(s, sep string) string {
	if _, rest, found := strings.Cut(s, sep); found {
		return rest
	}
	return s
}
