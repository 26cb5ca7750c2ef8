package export

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// facility is that of the audit log (RFC 5424, table 1).
const facility = 13

// syslog is a record as RFC 5424 has it. The message is the record as it stands in the log, behind the mark by which collectors know JSON. One that
// would be longer than limit is cut to what all records have, its hash and "cut"; 0 is no limit.
func syslog(h Host, r audit.Record, limit int) []byte {
	meta := r.Seq & (1<<31 - 1) // RFC 5424, 7.3.1: from 1 to 2147483647
	if meta == 0 {
		meta = 1
	}
	head := fmt.Sprintf("<%d>1 %s %s jail %d %s [origin software=\"jail\" swVersion=\"%s\"][meta sequenceId=\"%d\"] @cee: ",
		facility*8+severity(r), r.Time.UTC().Format("2006-01-02T15:04:05.000000Z"), printUSASCII(h.Name, 255), os.Getpid(),
		printUSASCII(string(r.Type), 32), sdValue(h.Version), meta)
	line := audit.EscapeJSON(r.Line)
	if limit > 0 && len(head)+len(line) > limit {
		sum := sha256.Sum256(r.Line)
		short := map[string]any{"time": r.Time, "sha256": hex.EncodeToString(sum[:]), "cut": true}
		names, values := common(r)
		for i, name := range names {
			short[name] = values[i]
		}
		line = compact(short)
	}
	return append([]byte(head), line...)
}

// printUSASCII is a word of the header.
func printUSASCII(s string, limit int) string {
	s = strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' {
			return -1
		}
		return c
	}, s)
	if s == "" {
		return "-"
	}
	return s[:min(len(s), limit)]
}

// sdValue is the value of a parameter of structured data.
func sdValue(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, `]`, `\]`).Replace(printUSASCII(s, 64))
}
