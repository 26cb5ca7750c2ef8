package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// A screen is what --tui shows: the list of changes, or the hunks of one. It draws itself whole after each key, and knows nothing of terminals but their
// size and a handful of sequences that all of them have.
type screen struct {
	choice  choice
	at, top int
	in      int // the change whose hunks are shown, or -1
	hunk    int
	scroll  int
	rows    int
	columns int
	colour  bool
}

// What a key leads to.
type outcome int

const (
	stay outcome = iota
	leave
	commitIt
)

// tui lets someone mark changes and hunks on a terminal, and commits what is marked.
func (a *app) tui(ctx context.Context, c *api.Client, id string) error {
	in, ok := a.stdin.(*os.File)
	if !ok || !isTerminal(in) || !isTerminal(a.stdout) {
		return usage("jail commit --patch "+id+" asks line by line", "jail diff --tui needs a terminal on standard input and standard output")
	}
	ch, err := review(ctx, c, id)
	if err != nil {
		return err
	}
	s := &screen{choice: ch, in: -1, colour: a.colour()}
	what, err := a.walk(in, s)
	if err != nil || what != commitIt {
		return err
	}
	return a.commitChosen(s.choice, func(req supervisor.CommitRequest) error { return a.commit(ctx, c, id, req, false) })
}

// walk has the terminal for itself until a key ends it, and gives it back as it was.
func (a *app) walk(in *os.File, s *screen) (what outcome, err error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return leave, failed(err, "", "the terminal: %v", cause(err))
	}
	io.WriteString(a.stdout, "\x1b[?1049h\x1b[?25l")
	defer func() {
		io.WriteString(a.stdout, "\x1b[?25h\x1b[?1049l")
		err = errors.Join(err, term.Restore(int(in.Fd()), before))
	}()
	keys := bufio.NewReader(in)
	for {
		if s.columns, s.rows, err = term.GetSize(int(in.Fd())); err != nil || s.columns < 20 || s.rows < 5 {
			s.columns, s.rows = 80, 24
		}
		if _, err := io.WriteString(a.stdout, s.draw()); err != nil {
			return leave, err
		}
		key, err := readKey(keys)
		if errors.Is(err, io.EOF) {
			return leave, nil
		}
		if err != nil {
			return leave, failed(err, "", "the terminal: %v", cause(err))
		}
		if what := s.press(key); what != stay {
			return what, nil
		}
	}
}

// readKey reads one key; those that are sequences have names.
func readKey(r *bufio.Reader) (string, error) {
	c, err := r.ReadByte()
	if err != nil || c != 0x1b {
		return string(c), err
	}
	if r.Buffered() == 0 {
		return "esc", nil
	}
	if next, _ := r.ReadByte(); next != '[' && next != 'O' {
		return "esc", nil
	}
	last, err := r.ReadByte()
	switch last {
	case 'A':
		return "up", err
	case 'B':
		return "down", err
	case 'C':
		return "right", err
	case 'D':
		return "left", err
	}
	for err == nil && last < 0x40 {
		last, err = r.ReadByte()
	}
	return "", err
}

const tuiHelp = "space mark  enter hunks  a all  n none  c commit  q quit"

// press does what a key is for.
func (s *screen) press(key string) outcome {
	switch key {
	case "q", "\x03":
		return leave
	case "c":
		return commitIt
	case "a", "n":
		for i := range s.choice.picks {
			p := &s.choice.picks[i]
			_, rank := attention(p.change)
			p.set(key == "a" && rank > 2) // what is protected or in conflict is marked by itself or not at all
		}
		return stay
	}
	if len(s.choice.picks) == 0 {
		return stay
	}
	if s.in < 0 {
		s.pressInList(key)
	} else {
		s.pressInFile(key)
	}
	return stay
}

func (s *screen) pressInList(key string) {
	p := &s.choice.picks[s.at]
	switch key {
	case "up", "k":
		s.at = max(0, s.at-1)
	case "down", "j":
		s.at = min(len(s.choice.picks)-1, s.at+1)
	case " ":
		p.set(p.count() < len(p.taken))
	case "right", "l", "\r", "\n":
		if len(p.hunks) > 0 {
			s.in, s.hunk, s.scroll = s.at, 0, 0
		}
	}
}

func (s *screen) pressInFile(key string) {
	p := &s.choice.picks[s.in]
	switch key {
	case "up", "k":
		s.hunk = max(0, s.hunk-1)
	case "down", "j":
		s.hunk = min(len(p.hunks)-1, s.hunk+1)
	case " ":
		p.taken[s.hunk] = !p.taken[s.hunk] && p.open()
	case "left", "h", "esc", "\r", "\n":
		s.in = -1
	}
}

// draw returns the whole screen.
func (s *screen) draw() string {
	var lines []string
	var cursor int
	if s.in < 0 {
		lines, cursor = s.list()
	} else {
		lines, cursor = s.file()
	}
	room := s.rows - 2
	top := &s.top
	if s.in >= 0 {
		top = &s.scroll
	}
	*top = max(0, min(*top, cursor), cursor-room+1)
	var b strings.Builder
	b.WriteString("\x1b[H\x1b[2J")
	info := s.choice.info
	b.WriteString(paint(s.colour, bold, cut(fmt.Sprintf("jail diff %s  %s  %s", printable(info.ID), info.Path, s.choice.chosen()), s.columns)) + "\r\n")
	for i := *top; i < *top+room; i++ {
		if i < len(lines) {
			b.WriteString(lines[i])
		}
		b.WriteString("\r\n")
	}
	b.WriteString(cut(tuiHelp, s.columns-1))
	return b.String()
}

func (s *screen) list() (lines []string, cursor int) {
	for i, p := range s.choice.picks {
		line := cut(fmt.Sprintf("%s %s %s", pointer(i == s.at), mark(p), changeLine(false, p.change)), s.columns-1)
		if _, rank := attention(p.change); rank < 4 {
			line = paint(s.colour, amber, line)
		}
		lines = append(lines, line)
	}
	if lines == nil {
		lines = []string{"nothing is changed"}
	}
	return lines, s.at
}

func (s *screen) file() (lines []string, cursor int) {
	p := s.choice.picks[s.in]
	lines = append(lines, cut(changeLine(false, p.change), s.columns-1))
	for i, h := range p.hunks {
		if i == s.hunk {
			cursor = min(len(lines)+len(h.Lines), len(lines)+s.rows-4) // as much of it as there is room for
		}
		box := "[ ]"
		if p.taken[i] {
			box = "[x]"
		}
		for j, text := range hunkText(h) {
			if j == 0 {
				text = pointer(i == s.hunk) + " " + box + " " + text
				lines = append(lines, paint(s.colour, cyan, cut(text, s.columns-1)))
				continue
			}
			lines = append(lines, paintHunkLine(s.colour, cut(strings.ReplaceAll(text, "\t", "    "), s.columns-1)))
		}
	}
	return lines, cursor
}

func pointer(here bool) string {
	if here {
		return ">"
	}
	return " "
}

func mark(p pick) string {
	switch n := p.count(); {
	case !p.open():
		return " - "
	case n == 0:
		return "[ ]"
	case n < len(p.taken):
		return "[~]"
	}
	return "[x]"
}

// cut shortens a line to a number of characters. It has no sequences in it yet.
func cut(line string, n int) string {
	if utf8.RuneCountInString(line) <= n {
		return line
	}
	runes := []rune(line)
	return string(runes[:max(0, n-1)]) + "…"
}
