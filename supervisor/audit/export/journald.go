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

// journal returns a record in the journal's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL)
// or, if export is set, in its export format (systemd.io/JOURNAL_EXPORT_FORMATS) with the time; an
// empty line ends it. The field JAIL_RECORD has the whole record.
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

// noBoot returns a fake boot id, since records have none and newer versions of systemd (seen with
// 257) refuse entries without one. It must not be a boot id of the host, since the journal would
// order the records by the time since that boot, which they do not have either.
func noBoot(h Host) string {
	sum := sha256.Sum256([]byte("jail audit " + h.Name))
	return hex.EncodeToString(sum[:16])
}

// journalName returns the name of a field in the journal's form: upper case, with underscores for
// all characters but letters and digits.
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

// journalField writes a field, with the length of a value of several lines, so that no value can be
// read as another field. It omits an empty value.
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
