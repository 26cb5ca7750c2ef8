package policy_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy"
)

func TestUnitParse(t *testing.T) {
	for _, tt := range []struct {
		unit policy.Unit
		text string
		want int64
		// How it is written again, if not as it was.
		as string
	}{
		{policy.Bytes, "256MiB", 256 << 20, ""},
		{policy.Bytes, "1024MiB", 1 << 30, "1GiB"},
		{policy.Bytes, "1B", 1, ""},
		{policy.Bytes, "1024TiB", 1 << 50, ""},
		{policy.Duration, "30s", int64(30 * time.Second), ""},
		{policy.Duration, "90m", int64(90 * time.Minute), "1h30m"},
		{policy.Duration, "2h", int64(2 * time.Hour), ""},
		{policy.Duration, "1h0m5s", int64(time.Hour + 5*time.Second), ""},
		{policy.Duration, "1ms", int64(time.Millisecond), ""},
		{policy.Cores, "1", 1000, "1.0"},
		{policy.Cores, "0.5", 500, ""},
		{policy.Cores, "1.25", 1250, ""},
		{policy.Cores, "1e1", 10000, "10.0"},
		{policy.Count, "32", 32, ""},
	} {
		got, err := tt.unit.Parse(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("%q = %d, %v, want %d", tt.text, got, err, tt.want)
		}
		if tt.as == "" {
			tt.as = tt.text
		}
		if s := tt.unit.Format(got); s != tt.as {
			t.Errorf("%q is written as %q, want %q", tt.text, s, tt.as)
		}
	}
}

func TestUnitErrors(t *testing.T) {
	for _, tt := range []struct {
		unit      policy.Unit
		text, why string
	}{
		{policy.Bytes, "", "no size"}, {policy.Bytes, "256", "no unit"},
		{policy.Bytes, "1e9", "no unit"},
		{policy.Bytes, "256MB", "no size"}, {policy.Bytes, "256 MiB", "no size"},
		{policy.Bytes, "256mib", "no size"},
		{policy.Bytes, "1.5GiB", "no size"}, {policy.Bytes, "0MiB", "more than zero"},
		{policy.Bytes, "-1MiB", "more than zero"},
		{policy.Bytes, "+1MiB", "no size"}, {policy.Bytes, "9999999999999TiB", "more than 1024TiB"},
		{policy.Bytes, "99999999999999999999B", "no size"},
		{policy.Bytes, "MiB", "no size"}, {policy.Bytes, "infB", "no size"},
		{policy.Duration, "30", "no unit"}, {policy.Duration, "", "no duration"},
		{policy.Duration, "0s", "more than zero"},
		{policy.Duration, "-3s", "more than zero"}, {policy.Duration, "1us", "less than 1ms"},
		{policy.Duration, "9000h", "more than 8784h"},
		{policy.Duration, "99999999999h", "no duration"}, {policy.Duration, "1d", "no duration"},
		{policy.Duration, "+1s", "no duration"},
		{policy.Cores, "", "no number"}, {policy.Cores, "many", "no number"},
		{policy.Cores, "NaN", "no number"},
		{policy.Cores, "inf", "more than"}, {policy.Cores, "-1", "more than zero"},
		{policy.Cores, "0", "more than zero"},
		{policy.Cores, "0.0001", "less than 0.001"}, {policy.Cores, "5000", "more than 4096.0"},
		{policy.Cores, "0x1p4", "no number"}, {policy.Cores, "-inf", "more than zero"},
		{policy.Count, "", "no whole number"}, {policy.Count, "1.5", "no whole number"},
		{policy.Count, "0", "more than zero"},
		{policy.Count, "-5", "more than zero"}, {policy.Count, "99999999999", "more than"},
		{policy.Count, "99999999999999999999", "no whole number"},
	} {
		if n, err := tt.unit.Parse(tt.text); err == nil || !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%q = %d, %v, want an error with %q", tt.text, n, err, tt.why)
		}
	}
	for _, unit := range []policy.Unit{policy.Count, policy.Bytes, policy.Duration, policy.Cores} {
		if unit.Format(policy.Unlimited) != "unlimited" {
			t.Errorf("unit %d writes no limit as %q", unit, unit.Format(policy.Unlimited))
		}
	}
}

func TestLimitsSet(t *testing.T) {
	var l policy.Limits
	for name, value := range map[string]string{
		"wall": "1s", "cpu_time": "2s", "cpus": "0.5", "memory": "1KiB", "pids": "3",
		"open_files": "4",
		"output":     "5B", "workspace": "6B", "workspace_files": "7", "file_size": "8B",
		"io_read": "9B", "io_write": "1KiB", "revert": "2KiB", "revert_time": "3s",
	} {
		if err := l.Set(name, value); err != nil {
			t.Error(err)
		}
	}
	want := policy.Limits{
		Wall: time.Second, CPUTime: 2 * time.Second, CPUs: 500, Memory: 1024, PIDs: 3,
		OpenFiles: 4, Output: 5, Workspace: 6, WorkspaceFiles: 7, FileSize: 8, IORead: 9,
		IOWrite: 1024, Revert: 2048, RevertTime: 3 * time.Second,
	}
	if l != want {
		t.Errorf("limits are %s, want %s", l, want)
	}
	if err := l.Set("memmory", "1B"); !errors.Is(err, policy.ErrUnknownLimit) ||
		!strings.Contains(err.Error(), "memory") {
		t.Errorf("unknown limit: %v", err)
	}
	if err := l.Set("memory", "lots"); err == nil || l != want {
		t.Errorf("a bad value: %v, limits %s", err, l)
	}
	var f policy.FetchLimits
	if err := f.Set("timeout", "5s"); err != nil || f.Timeout != 5*time.Second {
		t.Errorf("timeout: %v, %s", err, f)
	}
	if n, unit, ok := f.Get("timeout"); n != int64(5*time.Second) || unit != policy.Duration ||
		!ok {
		t.Error("Get is wrong")
	}
	if _, _, ok := l.Get("no"); ok || l.Put("no", 1) || f.Put("no", 1) || !f.Put("requests", 2) ||
		f.Requests != 2 {
		t.Error("Get or Put knows a limit that there is not, or not one that there is")
	}
	// The rate is a limit of its own.
	if n, m := len(policy.Fields("limits", "fetch.limits")),
		len(policy.LimitNames())+len(policy.FetchLimitNames())+1; n != m {
		t.Errorf("%d limits are described, of %d", n, m)
	}
	if got := (policy.Limits{Memory: -1}).Normal(); got != (policy.Limits{}) {
		t.Errorf("a negative limit is %s", got)
	}
}

// TestLimitFields holds that each field of Limits and FetchLimits has a row of its own in the table
// of its kind. A field without a row would have no name, and no policy would bound it.
func TestLimitFields(t *testing.T) {
	checkLimitRows(t, "limitFields", policy.LimitNames(), (*policy.Limits).Put)
	checkLimitRows(t, "fetchLimitFields", policy.FetchLimitNames(), (*policy.FetchLimits).Put)
}

func checkLimitRows[T any](t *testing.T, table string, names []string,
	put func(l *T, name string, n int64) bool) {
	t.Helper()
	limits := reflect.TypeFor[T]()
	if len(names) > limits.NumField() {
		t.Errorf("%s has the rows %v, and %v has %d fields", table, names, limits,
			limits.NumField())
	}
	for field := range limits.Fields() {
		name := field.Tag.Get("json")
		var got, want T
		reflect.ValueOf(&want).Elem().FieldByIndex(field.Index).SetInt(1)
		if !put(&got, name, 1) {
			t.Errorf("field %s of %v has no row in %s (policy/limits.go) named %q", field.Name,
				limits, table, name)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("row %q of %s sets another field than %s: %+v", name, table, field.Name, got)
		}
	}
}

func FuzzUnit(f *testing.F) {
	for _, s := range []string{"256MiB", "30s", "1.5", "32", "-1", "1e9", "9999999999999TiB",
		"NaN"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, unit := range []policy.Unit{policy.Count, policy.Bytes, policy.Duration,
			policy.Cores} {
			n, err := unit.Parse(text)
			if err != nil {
				continue
			}
			if n <= 0 || n == policy.Unlimited {
				t.Fatalf("%q is %d", text, n)
			}
			if again, err := unit.Parse(unit.Format(n)); err != nil || again != n {
				t.Fatalf("%q is %d, written as %q, read as %d, %v", text, n, unit.Format(n), again,
					err)
			}
		}
	})
}

func TestUnitRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for unit, most := range map[policy.Unit]int64{policy.Count: 1 << 31, policy.Bytes: 1 << 50,
			policy.Cores: 4096000} {
			n := rapid.Int64Range(1, most).Draw(t, "n")
			if got, err := unit.Parse(unit.Format(n)); err != nil || got != n {
				t.Fatalf("%d is written as %s, read as %d, %v", n, unit.Format(n), got, err)
			}
		}
	})
}
