package policy

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// FoldName returns a form of name that is the same for all names which some file system
// takes for one: without regard to case, without characters that cannot be seen, with
// full-width letters narrowed, without what NTFS drops at the end of a name.
//
// It serves to hold back, never to grant, so two names too many in one form do no harm.
func FoldName(name string) string {
	var b strings.Builder
	for rest := name; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if r == utf8.RuneError && size <= 1 {
			// Not UTF-8: compare the byte.
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		rest = rest[size:]
		if !ignorable(r) {
			b.WriteRune(foldRune(r))
		}
	}
	// On NTFS, name:stream opens a stream of the file name.
	folded, _, _ := strings.Cut(b.String(), ":")
	folded = strings.TrimRight(folded, " .")
	switch folded {
	case "git~1":
		// The short name that NTFS and FAT give to .git.
		return ".git"
	case "":
		return b.String()
	}
	return folded
}

func ignorable(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point)
}

// foldRune returns the least of the runes that differ from r by case only, so that the
// Kelvin sign is a k and the long s an s.
func foldRune(r rune) rune {
	if r >= 0xFF01 && r <= 0xFF5E {
		r -= 0xFEE0
	}
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return unicode.ToLower(least)
}
