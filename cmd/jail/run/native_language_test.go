package run_test

import (
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A program of the host has the caller's language and time zone where the policy passes them on, as
// build does; other variables of the caller it has not.
func TestNativeLanguage(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	const show = `echo "$LANG|$LANGUAGE|$LC_TIME|$TZ|$OTHER"`
	for _, args := range [][]string{{"run", "--discard", "--profile", "build"},
		{"session", "exec", h.Session("--discard", "--profile", "build")}} {
		cmd := h.Command(append(args, "--", "sh", "-c", show)...)
		cmd.Env = append(cmd.Env, "LANG=de_DE.UTF-8", "LANGUAGE=de:en", "LC_TIME=en_DK.UTF-8",
			"TZ=Asia/Kathmandu", "OTHER=x")
		if o := h.Run(cmd); o.Out != "de_DE.UTF-8|de:en|en_DK.UTF-8|Asia/Kathmandu|\n" {
			t.Errorf("%s: %+v", args[0], o)
		}
	}
}
