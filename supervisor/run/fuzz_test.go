package run

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/runners"
)

func shown(text string, most int) bool {
	return utf8.ValidString(text) && len(text) <= 12*most && !strings.ContainsFunc(text,
		func(r rune) bool { return !strconv.IsGraphic(r) })
}

// FuzzAnswer: whatever is said from inside, what the daemon keeps of it is bounded and can be
// shown, and what an honest jail-init says is kept as it is.
func FuzzAnswer(f *testing.F) {
	for _, a := range []runners.Answer{
		{Failure: "the module is cut short: it ends inside its code section"},
		{Failure: "\x1b[2J\u202e" + strings.Repeat("x", 5000)},
		{Report: &runners.Report{ExitCode: 134, Trap: &runners.Trap{Class: "memory",
			Sentence: "the module used memory that it does not have"}}},
		{Report: &runners.Report{Denied: []runners.Denial{{Layer: "wasi", What: "read /etc/passwd",
			Rule: "outside", Count: 3}, {Layer: "seccomp", Count: 1}, {Layer: "wasi", What: "\n",
			Count: -1}}}},
		{Report: &runners.Report{Trap: &runners.Trap{Class: strings.Repeat("\x00", 100),
			Sentence: strings.Repeat("\xff", 100_000)}}},
	} {
		text, err := json.Marshal(a)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var said runners.Answer
		if json.Unmarshal(text, &said) != nil {
			return
		}
		a := checkAnswer(said)
		if !shown(a.Failure, maxFailure) {
			t.Errorf("failure %q", a.Failure)
		}
		if (a.Report == nil) != (said.Report == nil) {
			t.Fatal("a report came from nowhere, or went there")
		}
		if a.Report == nil {
			return
		}
		if tr := a.Report.Trap; tr != nil && (!shown(tr.Class, maxClass) || !shown(tr.Sentence,
			maxSentence)) {
			t.Errorf("trap %q", tr)
		}
		if len(a.Report.Denied) > maxDenied {
			t.Errorf("%d refusals", len(a.Report.Denied))
		}
		for _, d := range a.Report.Denied {
			if d.Count < 1 || !shown(d.What, maxDeniedText) || !shown(d.Rule, maxDeniedText) {
				t.Errorf("refusal %+v", d)
			}
		}
		if again := checkAnswer(a); !reflect.DeepEqual(again, a) && len(text) < maxSentence {
			t.Errorf("%+v becomes %+v", a, again)
		}
	})
}
