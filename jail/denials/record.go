package denials

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Types of the kernel's records (linux/audit.h).
const (
	typeAccess = 1423 // AUDIT_LANDLOCK_ACCESS: something was refused
	// AUDIT_LANDLOCK_DOMAIN: a domain that is reported for the first time, or that has ended
	typeDomain = 1424
)

// A record is a parsed audit record about a Landlock domain.
type record struct {
	domain uint64
	at     time.Time

	// Of a refused access: its description, from whatOf.
	what string

	// The record reports the creator of the domain: its pid and uid.
	made bool
	// In the initial PID namespace.
	pid int
	uid uint32

	// The domain has ended; total counts its refusals, those without a record too.
	ended bool
	total uint64
}

// Limits beyond which parse refuses a record.
const (
	// Bytes; the kernel's are shorter (MAX_AUDIT_MESSAGE_LENGTH).
	maxRecord = 9000
	maxFields = 32
	maxRights = 32
)

var errRecord = errors.New("not a record of Landlock")

// parse parses the text of a record of a type. Tools can choose names in it, but none can pass for
// a field: the kernel writes names with blanks, quotes or unprintable characters in hexadecimal.
func parse(kind uint16, text string) (record, error) {
	var r record
	// Some senders end a text with NUL.
	text = strings.TrimRight(text, "\x00")
	if len(text) > maxRecord {
		return r, fmt.Errorf("%w: %d bytes", errRecord, len(text))
	}
	stamp, rest, ok := strings.Cut(text, "): ")
	if !ok {
		return r, fmt.Errorf("%w: no beginning", errRecord)
	}
	var err error
	if r.at, err = parseStamp(stamp); err != nil {
		return r, err
	}
	fields, err := parseFields(rest)
	if err != nil {
		return r, err
	}
	if r.domain, err = strconv.ParseUint(fields["domain"], 16, 64); err != nil || r.domain == 0 {
		return r, fmt.Errorf("%w: domain %.40q", errRecord, fields["domain"])
	}
	switch {
	case kind == typeAccess:
		r.what, err = whatOf(fields)
	case kind == typeDomain && fields["status"] == "allocated":
		r.made = true
		err = r.maker(fields)
	case kind == typeDomain && fields["status"] == "deallocated":
		r.ended = true
		if r.total, err = strconv.ParseUint(fields["denials"], 10, 63); err != nil {
			err = fmt.Errorf("%w: denials %.40q", errRecord, fields["denials"])
		}
	default:
		err = fmt.Errorf("%w: type %d, status %.40q", errRecord, kind, fields["status"])
	}
	return r, err
}

func (r *record) maker(fields map[string]string) error {
	pid, err := strconv.ParseUint(fields["pid"], 10, 31)
	uid, uidErr := strconv.ParseUint(fields["uid"], 10, 32)
	if err != nil || uidErr != nil || pid == 0 {
		return fmt.Errorf("%w: pid %.40q, uid %.40q", errRecord, fields["pid"], fields["uid"])
	}
	r.pid, r.uid = int(pid), uint32(uid)
	return nil
}

// parseStamp parses "audit(1729738800.268:30": seconds, milliseconds and an ignored serial number.
func parseStamp(text string) (time.Time, error) {
	bad := fmt.Errorf("%w: time %.60q", errRecord, text)
	inside, ok := strings.CutPrefix(text, "audit(")
	clock, serial, hasSerial := strings.Cut(inside, ":")
	secs, millis, hasMillis := strings.Cut(clock, ".")
	if !ok || !hasSerial || !hasMillis || len(millis) != 3 {
		return time.Time{}, bad
	}
	if _, err := strconv.ParseUint(serial, 10, 64); err != nil {
		return time.Time{}, bad
	}
	s, err := strconv.ParseUint(secs, 10, 40)
	ms, msErr := strconv.ParseUint(millis, 10, 16)
	if err != nil || msErr != nil {
		return time.Time{}, bad
	}
	return time.Unix(int64(s), int64(ms)*int64(time.Millisecond)).UTC(), nil
}

// parseFields parses NAME=VALUE pairs with blanks between them. Quoted values keep their quotes,
// which tell plain that they are not hexadecimal.
func parseFields(text string) (map[string]string, error) {
	fields := map[string]string{}
	for text = strings.TrimLeft(text, " "); text != ""; text = strings.TrimLeft(text, " ") {
		name, rest, ok := strings.Cut(text, "=")
		if !ok || !isName(name) {
			return nil, fmt.Errorf("%w: field %.40q", errRecord, text)
		}
		end := strings.IndexByte(rest, ' ')
		if strings.HasPrefix(rest, `"`) {
			if end = strings.IndexByte(rest[1:], '"'); end < 0 {
				return nil, fmt.Errorf("%w: field %s has no end", errRecord, name)
			}
			if end += 2; end < len(rest) && rest[end] != ' ' {
				return nil, fmt.Errorf("%w: field %s goes on after its end", errRecord, name)
			}
		} else if end < 0 {
			end = len(rest)
		}
		if _, twice := fields[name]; twice || len(fields) == maxFields {
			return nil, fmt.Errorf("%w: field %s is there twice, or one too many", errRecord, name)
		}
		fields[name], text = rest[:end], rest[end:]
	}
	return fields, nil
}

func isName(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s,
		"abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// plain decodes the value of a field that may hold any bytes. The kernel writes such a value in
// quotes, or in hexadecimal. ok is false for other values, such as "<too_long>".
func plain(value string) (text string, ok bool) {
	if inside, quoted := strings.CutPrefix(value, `"`); quoted {
		inside, ok = strings.CutSuffix(inside, `"`)
		return inside, ok && inside != ""
	}
	b, err := hex.DecodeString(value)
	return string(b), err == nil && len(b) > 0
}

// whatOf returns the missing rights with the path, or with the object in brackets if it has no
// path: "read_file /etc/shadow", "connect_tcp(80)", "signal(sleep)".
func whatOf(fields map[string]string) (string, error) {
	rights := strings.Split(fields["blockers"], ",")
	if len(rights) > maxRights {
		return "", fmt.Errorf("%w: %d rights", errRecord, len(rights))
	}
	for i, right := range rights {
		kind, name, two := strings.Cut(right, ".")
		if !isName(kind) || two && !isName(name) {
			return "", fmt.Errorf("%w: blockers %.60q", errRecord, fields["blockers"])
		}
		if two {
			rights[i] = name
		}
	}
	what := strings.Join(rights, ",")
	for _, name := range []string{"path", "name"} {
		if value, there := fields[name]; there {
			path, ok := plain(value)
			switch {
			case !ok:
				return what + " a path that the kernel did not tell", nil
			case strings.HasPrefix(path, "\x00"):
				// The name of an abstract socket begins with a zero byte, which is shown as @.
				return what + "(@" + path[1:] + ")", nil
			}
			return what + " " + path, nil
		}
	}
	for _, name := range []string{"dest", "src"} {
		if port, err := strconv.ParseUint(fields[name], 10, 16); err == nil {
			return what + "(" + strconv.FormatUint(port, 10) + ")", nil
		}
	}
	if program, ok := plain(fields["ocomm"]); ok {
		return what + "(" + program + ")", nil
	}
	return what, nil
}
