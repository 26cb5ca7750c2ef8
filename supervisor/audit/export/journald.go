package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// journal is a record as the journal's native protocol has it (systemd.io/JOURNAL_NATIVE_PROTOCOL),
// or, with its time, as its export format does (systemd.io/JOURNAL_EXPORT_FORMATS), of which an
// empty line is the end. The whole record is in JAIL_RECORD.
func journal(h Host, r audit.Record, export bool) []byte {
	var b bytes.Buffer
	if export {
		journalField(&b, "__REALTIME_TIMESTAMP", strconv.FormatInt(r.Time.UnixMicro(), 10))
		journalField(&b, "_BOOT_ID", noBoot(h))
		journalField(&b, "_HOSTNAME", h.Name)
	}
	journalField(&b, "MESSAGE", summary(r))
	journalField(&b, "PRIORITY", strconv.Itoa(severity(r)))
	journalField(&b, "SYSLOG_IDENTIFIER", "jail")
	journalField(&b, "SYSLOG_FACILITY", strconv.Itoa(facility))
	names, values := commonFields(r)
	for i, name := range names {
		journalField(&b, "JAIL_"+strings.ToUpper(name), fmt.Sprint(values[i]))
	}
	for _, f := range r.Fields {
		value := string(f.Value)
		var s string
		if json.Unmarshal(f.Value, &s) == nil {
			value = audit.Printable(audit.Original(s))
		}
		journalField(&b, "JAIL_FIELD_"+journalName(f.Name), value)
	}
	journalField(&b, "JAIL_RECORD", string(audit.EscapeJSON(r.Line)))
	return b.Bytes()
}

// noBoot stands in for the boot of which a record is. No record says that, and newer systemds take
// no entry without one (seen with 257). It is no boot's of the host's, or the records would be
// ordered by the time since that boot, which they have not, and no longer by the clock.
func noBoot(h Host) string {
	sum := sha256.Sum256([]byte("jail audit " + h.Name))
	return hex.EncodeToString(sum[:16])
}

// journalName is the name of a field: what is no capital letter, digit or underscore is one.
func journalName(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z':
			return c - 'a' + 'A'
		case c >= '0' && c <= '9':
			return c
		}
		return '_'
	}, name[:min(len(name), 40)])
}

// journalField writes a field with the length of its value, so that no value can be taken for
// another field.
func journalField(b *bytes.Buffer, name, value string) {
	if value == "" {
		return
	}
	b.WriteString(name)
	if !strings.Contains(value, "\n") {
		b.WriteByte('=')
	} else {
		b.WriteByte('\n')
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(value)))
		b.Write(size[:])
	}
	b.WriteString(value)
	b.WriteByte('\n')
}
