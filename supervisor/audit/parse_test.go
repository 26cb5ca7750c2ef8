package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var tail = `,"prev":"` + noLine().String() + `"}`

const front = `{"seq":1,"time":"2026-01-02T03:04:05Z","type":"x"`

// T-535: a record has one way to be written, and no other is read.
func TestParseStrict(t *testing.T) {
	good := []string{
		front + tail,
		front + `,"a":"\"\\\n\u001b\ud83d\ude42é","b":[1,-2,0,true,false,[],{}],"c":{"a":1}` + tail,
		front + `,"n":9999999999999999999` + tail,
		front + `,"d":` + strings.Repeat("[", 7) + strings.Repeat("]", 7) + tail,
	}
	for _, s := range good {
		if _, err := ParseRecord([]byte(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	bad := []string{
		``, `{}`, `[]`, `null`, `"x"`, front, front + `}`, front + tail + ` `, ` ` + front + tail,
		front + tail + "\n",
		front + `,"a":1,"a":2` + tail, front + `,"c":{"a":1,"a":2}` + tail, // duplicate keys
		front + `,"Seq":2` + tail, front + `,"\u0061":2` + tail, front + `,"":2` + tail,
		front + `,"é":2` + tail,
		front + `,"a":1.5` + tail, front + `,"a":1e3` + tail, front + `,"a":01` + tail,
		front + `,"a":-0` + tail, front + `,"a":-` + tail,
		front + `,"a":99999999999999999999` + tail, front + `,"a":null` + tail, front + `,"a":nan` +
			tail, front + `,"a":` + tail,
		front + `,"a": 1` + tail, front + `,,"a":1` + tail, front + `,"a":[1,]` + tail,
		front + `,"a":[1` + tail,
		front + `,"a":"\t"` + tail, front + `,"a":"\/"` + tail, front + `,"a":"\u00E9"` + tail,
		front + `,"a":"\u12"` + tail,
		front + `,"a":"\ud800"` + tail, front + `,"a":"\ud800\u0041"` + tail,
		front + `,"a":"\udc00"` + tail, front + `,"a":"\ud800\n"` + tail,
		front + ",\"a\":\"\x00\"" + tail, front + ",\"a\":\"\x1b\"" + tail,
		front + ",\"a\":\"\x7f\"" + tail, front + ",\"a\":\"\xff\"" + tail,
		front + `,"d":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + tail,
		front + `,"d":` + strings.Repeat("[", 1_000_000) + tail,
		front + strings.Repeat(`,"d":{"d":`, 100_000),
		front + `,"k":{` + strings.Repeat(`"x":1,`, 70) + tail,
		`{"seq":"1","time":"x","type":"x"` + tail,
		`{"seq":-1,"time":"2026-01-02T03:04:05Z","type":"x"` + tail,
		`{"time":"2026-01-02T03:04:05Z","seq":1,"type":"x"` + tail,
		`{"seq":1,"type":"x","time":"2026-01-02T03:04:05Z"` + tail,
		`{"seq":1,"time":"2026-01-02T03:04:05Z"` + tail, front + `,"prev":"sha256:00"}`,
		front + strings.ToUpper(tail),
		strings.TrimSuffix(front+tail, "}") + `,"a":1}`, `{"prev":"` + noLine().String() +
			`","seq":1,"time":"x","type":"x"}`,
		`{"seq":1,"time":"yesterday","type":"x"` + tail, front + `,"actor":3` + tail,
		front + `,"run":7` + tail,
	}
	for _, s := range bad {
		if _, err := ParseRecord([]byte(s)); !errors.Is(err, errLine) {
			t.Errorf("%.200s: %v", s, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(front +
		`,"a":"\"\\\n\u001b\ud83d\ude42é","b":[1,-2,0,true,false,[],{}],"c":{"a":1}` + tail))
	f.Add([]byte(front + tail))
	f.Add([]byte(`{"seq":1,"seq":2}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var p parser
		if p.parse(line, nil) == nil && !json.Valid(line) {
			t.Errorf("encoding/json does not take %q", line)
		}
		r, err := ParseRecord(line)
		if err != nil {
			return
		}
		var table, raw bytes.Buffer
		Render(&table, r)
		RenderJSON(&raw, r)
		if !harmless(table.Bytes()) || !harmless(raw.Bytes()) {
			t.Errorf("%q renders as %q and %q", line, table.Bytes(), raw.Bytes())
		}
	})
}

// FuzzText: every string is stored as one harmless JSON string and comes back as it was.
func FuzzText(f *testing.F) {
	for _, s := range nasty() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := appendString(nil, s)
		var back string
		if err := json.Unmarshal(text, &back); err != nil || Original(back) != s {
			t.Errorf("%q is stored as %s, which is %q, %v", s, text, Original(back), err)
		}
		if !harmless(append(text, '\n')) || !utf8.Valid(text) || len(text) > 6*len(s)+2 {
			t.Errorf("%q is stored as %q", s, text)
		}
		line := []byte(front + `,"a":` + string(text) + tail)
		if _, err := ParseRecord(line); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	})
}

// FuzzVerify: no directory makes Verify, Scan or Open panic, and none that differs from the log
// that was signed passes.
func FuzzVerify(f *testing.F) {
	f.Add([]byte("x\n"), []byte("jail-audit/x\n1\nsha256:00\nlatest\n\n— x y\n"), 0)
	f.Add([]byte{}, []byte{}, 1)
	f.Fuzz(func(t *testing.T, text, head []byte, at int) {
		p := newPlace(t)
		l := p.open(t)
		mustAppend(t, l, denied("a"))
		mustClose(t, l)
		good, _ := os.ReadFile(p.segment(1))
		name := filepath.Join(p.log, headFile)
		goodHead, _ := os.ReadFile(name)
		if len(text) > 0 {
			at = max(0, at%len(good))
			bad := append(bytes.Clone(good[:at]), text...)
			os.WriteFile(p.segment(1), bad, 0o640)
			if _, err := p.verify(t); err == nil && !bytes.Equal(bad, good) {
				t.Errorf("passed: %q", bad)
			}
			for range Scan(p.log, Filter{}) {
			}
			if l, err := Open(p.options()); err == nil {
				l.Close()
			}
		}
		if !bytes.Equal(head, goodHead) {
			os.WriteFile(name, head, 0o640)
			if _, err := p.verify(t); err == nil {
				t.Errorf("passed with head %q", head)
			}
		}
	})
}

// T-539: memory stays bounded however hostile the log is.
func TestVerifyEndlessLine(t *testing.T) {
	p := newPlace(t)
	p.fill(t, 3)
	info, err := os.Stat(p.segment(1))
	if err != nil {
		t.Fatal(err)
	}
	// A hole: one line of 64 GiB of zeros.
	if err := os.Truncate(p.segment(1), info.Size()+64<<30); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	p.wantFault(t, 4, unsigned)
	if _, err := Open(p.options()); !errors.Is(err, errDamaged) {
		t.Errorf("open with 64 GiB behind the head: %v", err)
	}
	os.Remove(filepath.Join(p.log, headFile))
	p.wantFault(t, 4, altered)
	n := 0
	for _, err := range Scan(p.log, Filter{}) {
		if n++; n <= 3 && err != nil {
			t.Error(err)
		}
	}
	if n != 4 {
		t.Errorf("%d records and errors, want 3 and 1", n)
	}
}

// TestAppendTime: the times of records are those that package time writes in the same layout.
func TestAppendTime(t *testing.T) {
	zone := time.FixedZone("east", 5*3600+45*60)
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(1, 9), time.Unix(1<<33, 999_999_999),
		time.Date(999, 12, 31, 23, 59, 59, 1, time.UTC), time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 2, 28, 23, 59, 59, 120_000_000, zone),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		want := at.UTC().Format(timeLayout)
		if got := string(appendTime([]byte("x"), at)); got != "x"+want {
			t.Errorf("%s, want %s", got[1:], want)
		}
	}
}

func BenchmarkAppendTime(b *testing.B) {
	now, to := time.Now(), make([]byte, 0, 64)
	b.Run("appendTime", func(b *testing.B) {
		for b.Loop() {
			appendTime(to, now)
		}
	})
	b.Run("AppendFormat", func(b *testing.B) {
		for b.Loop() {
			now.UTC().AppendFormat(to, timeLayout)
		}
	})
}
