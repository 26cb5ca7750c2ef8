package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// Bounds of one page of a review. The rest is on further pages, which are linked.
const (
	pageChanges = 40
	pageText    = 400 << 10 // bytes of differences
	// lines of one file on a page with several
	fileLines = 400
	// lines of one file on its own page
	windowLines  = 2000
	maxLine      = 2000 // bytes of one line
	maxAttention = 100
)

// A line is a line of differences, with its CSS class.
type line struct {
	Class, Text string
	// The end of the line is not shown.
	Cut bool
}

// A part is a hunk, or all of the text of a change that has no hunks.
type part struct {
	Number int // of the hunk
	// value of its checkbox; "" if it has none
	Mark string
	// Its @@ line.
	Head  string
	Lines []line
	// The number of its lines on earlier pages.
	Before int
	// The number of its lines on later pages.
	After int
}

// A change is a change as a page shows it.
type change struct {
	Path string
	// Its path in the form, as the daemon expects it.
	Value  string
	Kind   workspace.Kind
	Detail string
	Why    []string // why it needs attention
	Grave  bool
	Held   bool
	// Why it can never be committed; "" if it can.
	Shut  string
	Parts []part
	// The number of its hunks.
	Hunks int
	// The number of lines of its differences.
	Lines int
	// The number of lines that are not on this page.
	Hidden int
	// A note in place of the differences.
	Note string
	// query of the page with the whole change
	More string
	// On its own page, the first line shown.
	From int
	// query of its next page
	Next string
	Prev string
}

// A mention is a change that needs attention, with a link to it.
type mention struct {
	Path, Why string
	Link      string
	Grave     bool
}

type review struct {
	ID       string
	Info     shadows.WorkspaceInfo
	Path     string
	Changes  []change
	Mentions []mention
	// The number of mentions that are not listed.
	Unlisted int
	Summary  api.ReviewSummary
	Renames  []string
	Page     int // from 1
	Pages    int
	// On the page of one change, its path.
	File string
	// The policy forbids commits.
	Never bool
	// Git is what changed in repositories, a line each.
	Git []string
	// Whole says that the page shows all changes in full.
	Whole bool
	// Folded counts the changes to git's own files that are not listed. All says that they are
	// listed.
	Folded int
	All    bool
}

// whole reports whether a page shows all changes in full.
func whole(r review) bool {
	return r.File == "" && r.Pages <= 1 && !slices.ContainsFunc(r.Changes, func(c change) bool {
		return c.Hidden > 0 || slices.ContainsFunc(c.Parts, func(p part) bool {
			return slices.ContainsFunc(p.Lines, func(l line) bool { return l.Cut })
		})
	})
}

// A shownReview is a review in the page at the path Here.
type shownReview struct {
	Here   string
	Review *review
}

func (c *Console) review(r *http.Request, s *session) (answer, error) {
	q := r.URL.Query()
	b, err := c.build(r, reading{run: r.PathValue("id"), all: q.Get("all") == "1" || q.Has("path")})
	if err != nil {
		return answer{}, err
	}
	rv := b.finish()
	if b.window && len(rv.Changes) == 0 {
		return s.said(http.StatusNotFound, notice{Title: "Not Found",
			Text:     "No change of this run has the path " + text(b.only) + ".",
			Hint:     "It may have been committed meanwhile.",
			Next:     s.runPath(rv.ID) + "/review",
			NextText: "Review what there is now"}), nil
	}
	return answer{http.StatusOK, "review.html", s.page("Review of "+text(rv.ID), "runs", &rv)}, nil
}

// reading selects the part of the changes that a page shows.
type reading struct {
	run string
	// all also lists git's own files.
	all bool
	// paths limit it to changes at and below them; nil means all. takes limits it to changes for
	// which it returns true, and to the hunks with the returned numbers; nil means all.
	paths []string
	takes func(api.Change) (bool, []int)
}

// build reads a review for one page. If the changes to git's own files cannot be summarised, it
// lists them.
func (c *Console) build(r *http.Request, what reading) (*builder, error) {
	q := r.URL.Query()
	b := &builder{what: what, page: max(atoi(q.Get("page")), 1), from: max(atoi(q.Get("line")), 0)}
	if q.Has("path") {
		b.only, b.window = q.Get("path"), true
	}
	b.review.ID, b.review.All = what.run, what.all
	for l, err := range c.Daemon.Changes(r.Context(), what.run, api.PatchReview, what.paths...) {
		if err != nil {
			return nil, err
		}
		b.take(l)
	}
	if !what.all && b.review.Folded > 0 && !b.understood() {
		what.all = true
		return c.build(r, what)
	}
	return b, nil
}

// understood reports whether the changes of every repository could be summarised.
func (b *builder) understood() bool {
	for _, g := range b.review.Summary.Git {
		if g.NotUnderstood != "" {
			return false
		}
	}
	return len(b.review.Summary.Git) > 0
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// builder builds one page of a review from a stream. It holds only that page and one change.
type builder struct {
	what reading
	page int
	// A page of one change.
	window bool
	only   string
	from   int

	review review
	seen   int // changes
	// bytes of differences on the page so far
	budget int
	open   *change
	kind   api.Change
	patch  strings.Builder
	hunks  []workspace.Hunk
}

// taken reports whether a change is shown, and the numbers of its hunks that are; nil means all.
func (b *builder) taken(c api.Change) (bool, []int) {
	if b.what.takes == nil {
		return true, nil
	}
	return b.what.takes(c)
}

func (b *builder) take(l api.ReviewLine) {
	switch {
	case l.Info != nil:
		b.review.Info = *l.Info
	case l.Change != nil:
		b.close()
		if !b.review.All && l.Change.Folds() {
			b.review.Folded++
			return
		}
		if taken, _ := b.taken(*l.Change); taken {
			b.begin(*l.Change)
		}
	case l.Patch != nil && b.open != nil:
		b.patch.Write(l.Patch)
	case l.Hunks != nil && b.open != nil:
		b.hunks = l.Hunks.Hunks
	case l.Summary != nil:
		b.close()
		b.review.Summary = *l.Summary
	}
}

func (b *builder) begin(c api.Change) {
	at := b.seen
	b.seen++
	shown := describe(c)
	if why := strings.Join(shown.Why, "; "); why != "" {
		if len(b.review.Mentions) < maxAttention {
			b.review.Mentions = append(b.review.Mentions,
				mention{shown.Path, why, query("path", shown.Value), shown.Grave})
		} else {
			b.review.Unlisted++
		}
	}
	here := at/pageChanges+1 == b.page
	if b.window {
		here = shown.Value == b.only
	}
	if here {
		b.open, b.kind, b.hunks = &shown, c, nil
		b.patch.Reset()
	}
}

// close adds the open change to the page, if there is one.
func (b *builder) close() {
	if b.open == nil {
		return
	}
	c := b.open
	b.open = nil
	c.Hunks = len(b.hunks)
	for i, h := range b.hunks {
		if _, taken := b.taken(b.kind); taken != nil && !slices.Contains(taken, i) {
			continue
		}
		p := part{Number: i + 1, Mark: fmt.Sprintf("%d:%s", i, c.Value),
			Head: fmt.Sprintf("@@ -%d,%d +%d,%d @@", h.From, h.FromLines, h.To, h.ToLines)}
		for _, l := range h.Lines {
			p.Lines = append(p.Lines, shownLine(l))
		}
		c.Parts = append(c.Parts, p)
	}
	// For a directory, the line with its name is enough.
	if c.Hunks == 0 && b.patch.Len() > 0 && !onlyDir(b.kind) {
		p := part{}
		for l := range strings.Lines(b.patch.String()) {
			p.Lines = append(p.Lines, shownLine(strings.TrimSuffix(l, "\n")))
		}
		c.Parts = []part{p}
	}
	if len(c.Parts) == 0 && c.Note == "" && !onlyDir(b.kind) {
		c.Note = "There is no text to show."
	} else if len(c.Parts) > 0 && c.Kind == workspace.Deleted {
		c.Note = ""
	}
	limit := fileLines
	if b.window {
		limit = windowLines
	}
	all, shown := fit(c, b.from, limit, pageText-b.budget)
	for _, p := range c.Parts {
		for _, l := range p.Lines {
			b.budget += len(l.Text)
		}
	}
	c.Lines, c.Hidden = all, all-shown
	shownTo := b.from + shown
	switch {
	case !b.window && all > shown:
		c.More = query("path", c.Value)
	case b.window:
		c.From = b.from
		if shownTo < all && shown > 0 {
			c.Next = query("path", c.Value, "line", strconv.Itoa(shownTo))
		}
		if b.from > 0 {
			c.Prev = query("path", c.Value, "line", strconv.Itoa(max(0, b.from-windowLines)))
		}
	}
	b.review.Changes = append(b.review.Changes, *c)
}

// onlyDir reports whether a change has only a directory on both sides.
func onlyDir(c api.Change) bool {
	return (c.Before == nil || c.Before.Type == workspace.Dir) && (c.After == nil ||
		c.After.Type == workspace.Dir)
}

// fit keeps the lines of a change from number from on, at most so many lines and bytes. It drops
// hunks without lines, so that only visible hunks can be marked. It returns the number of all lines
// and of the kept ones.
func fit(c *change, from, lines, bytes int) (all, shown int) {
	var kept []part
	for _, p := range c.Parts {
		first, last := -1, -1
		for i, l := range p.Lines {
			if at := all + i; at >= from && shown < lines && bytes > 0 {
				if first < 0 {
					first = i
				}
				last = i
				shown++
				bytes -= len(l.Text) + 1
			}
		}
		all += len(p.Lines)
		if first < 0 {
			continue
		}
		p.Before, p.After = first, len(p.Lines)-last-1
		p.Lines = p.Lines[first : last+1]
		kept = append(kept, p)
	}
	c.Parts = kept
	return all, shown
}

func (b *builder) finish() review {
	b.close()
	rv := b.review
	rv.Path = path(rv.Info.Path)
	rv.Page, rv.Pages = b.page, max(1, (b.seen+pageChanges-1)/pageChanges)
	rv.Never = rv.Info.Commit == "never"
	if b.window && len(rv.Changes) > 0 {
		rv.File = rv.Changes[0].Path
	}
	rv.Whole = whole(rv)
	for _, g := range rv.Summary.Git {
		label := ""
		if g.Path != ".git" {
			label = g.Path + ": "
		}
		for _, line := range g.Lines {
			rv.Git = append(rv.Git, text(label+line))
		}
	}
	for _, r := range rv.Summary.Renames[:min(len(rv.Summary.Renames), maxAttention)] {
		rv.Renames = append(rv.Renames, path(r.From)+" → "+path(r.To))
	}
	return rv
}

// shownLine returns an escaped line of a patch with its CSS class, cut to maxLine.
func shownLine(l string) line {
	class := "meta"
	switch {
	case strings.HasPrefix(l, "+++ "), strings.HasPrefix(l, "--- "):
		// File headers of a patch, or lines that look alike.
	case strings.HasPrefix(l, "+"):
		class = "add"
	case strings.HasPrefix(l, "-"):
		class = "del"
	case strings.HasPrefix(l, "@@"):
		class = "hunk"
	case strings.HasPrefix(l, " "):
		class = ""
	}
	out := escaped(l)
	short := cut(out, maxLine)
	isCut := short != out
	if isCut {
		out = fmt.Sprintf("%s… (%d bytes more in this line: jail diff shows them)", short,
			len(out)-len(short))
	}
	return line{class, out, isCut}
}

// query returns the URL query for pairs of names and values.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return "?" + v.Encode()
}
