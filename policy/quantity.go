package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unlimited is the top of each limit. No file can write it: a limit that a ceiling or a request
// leaves out narrows nothing.
const Unlimited = math.MaxInt64

// Unit is how a limit is counted and written.
type Unit uint8

// The units of limits.
const (
	Count Unit = iota // a number: 32
	Bytes             // with a unit: 256MiB
	// with a unit: 30s; counted in nanoseconds
	Duration
	// A fraction: 1.5; counted in thousandths.
	Cores
)

// The largest values of limits. Larger ones are taken for typing mistakes.
const (
	maxCount    = 1 << 31
	maxBytes    = 1 << 50 // 1 PiB
	maxDuration = 366 * 24 * time.Hour
	maxCores    = 4096 * 1000
)

var byteUnits = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// Parse reads a value of the unit, as a file or a flag has it. Zero, negative, endless
// and absurdly large values are errors, and so is a value without its unit.
func (u Unit) Parse(text string) (int64, error) {
	switch u {
	case Bytes:
		return parseBytes(text)
	case Duration:
		return parseDuration(text)
	case Cores:
		return parseCores(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number", text)
	}
	return u.inRange(n, text)
}

// inRange returns n, or an error if it is outside of the bounds of the unit. Errors show text.
func (u Unit) inRange(n int64, text string) (int64, error) {
	least, most := u.bounds()
	switch {
	case n <= 0:
		return 0, fmt.Errorf("%s is no limit that can be meant: it must be more than zero", text)
	case n < least:
		return 0, fmt.Errorf("%s is less than %s", text, u.Format(least))
	case n > most:
		return 0, fmt.Errorf("%s is more than %s", text, u.Format(most))
	}
	return n, nil
}

func (u Unit) bounds() (least, most int64) {
	switch u {
	case Bytes:
		return 1, maxBytes
	case Duration:
		return int64(time.Millisecond), int64(maxDuration)
	case Cores:
		return 1, maxCores
	}
	return 1, maxCount
}

// Format returns n as text that Parse accepts.
func (u Unit) Format(n int64) string {
	if n == Unlimited {
		return "unlimited"
	}
	switch u {
	case Bytes:
		for _, b := range byteUnits {
			if n != 0 && n%b.size == 0 {
				return strconv.FormatInt(n/b.size, 10) + b.name
			}
		}
		return "0B"
	case Duration:
		return formatDuration(time.Duration(n))
	case Cores:
		text := strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	}
	return strconv.FormatInt(n, 10)
}

// formatDuration leaves out the units that are zero: 2h, not 2h0m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func parseBytes(text string) (int64, error) {
	for _, b := range byteUnits {
		digits, ok := strings.CutSuffix(text, b.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || strings.HasPrefix(digits, "+") {
			break
		}
		if n > maxBytes/b.size {
			return 0, fmt.Errorf("%s is more than %s", text, Bytes.Format(maxBytes))
		}
		return Bytes.inRange(n*b.size, text)
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf(
			"%s has no unit: write B, KiB, MiB, GiB or TiB after the number, as in 256MiB", text)
	}
	return 0, fmt.Errorf(
		"%q is no size: write a whole number and B, KiB, MiB, GiB or TiB, as in 256MiB", text)
}

func parseDuration(text string) (int64, error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("%s has no unit: write ms, s, m or h after the number, as in 30s",
			text)
	}
	d, err := time.ParseDuration(text)
	if err != nil || strings.HasPrefix(text, "+") {
		return 0, fmt.Errorf("%q is no duration: write a number and ms, s, m or h, as in 30s", text)
	}
	return Duration.inRange(int64(d), text)
}

func parseCores(text string) (int64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || strings.ContainsAny(text, "xXpP_") {
		return 0, fmt.Errorf("%q is no number of CPUs: write one such as 1.5", text)
	}
	return coresFrom(f, text)
}

// coresFrom returns a number of CPUs in thousandths. text is quoted in errors.
func coresFrom(f float64, text string) (int64, error) {
	if math.IsNaN(f) || f > maxCores/1000 {
		return 0, fmt.Errorf("%s is more than %s", text, Cores.Format(maxCores))
	}
	n := int64(math.Round(f * 1000))
	if f > 0 && n == 0 {
		return 0, fmt.Errorf("%s is less than %s", text, Cores.Format(1))
	}
	return Cores.inRange(n, text)
}
