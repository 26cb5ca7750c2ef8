package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor"
)

const askHelp = `y  take it
n  leave it
a  take it and all that follows in this file
d  leave it and all that follows in this file
q  leave it and all that follows, and commit what was taken
?  show this
`

// errQuit ends the questions.
var errQuit = errors.New("quit")

// ask goes through a review in the manner of git add -p: one question for each hunk, and one for each change that has none. The end of the input is q. Nothing is
// committed that was not said yes to.
func (a *app) ask(in io.Reader, ch choice) error {
	q := &questions{in: bufio.NewReader(in), out: a.stdout, colour: a.colour()}
	for i := range ch.picks {
		if err := q.pick(&ch.picks[i]); errors.Is(err, errQuit) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

type questions struct {
	in     *bufio.Reader
	out    io.Writer
	colour bool
}

func (q *questions) pick(p *pick) error {
	fmt.Fprintln(q.out, changeLine(q.colour, p.change))
	for _, r := range p.change.Risks {
		fmt.Fprintf(q.out, "  %s %s\n", paint(q.colour, amber, string(r.Class)+":"), printable(r.Why))
	}
	if !p.open() {
		return nil
	}
	if len(p.hunks) == 0 {
		answer, err := q.question("take this change", "ynq?")
		p.taken[0] = answer == 'y'
		return err
	}
	for i, h := range p.hunks {
		for _, line := range hunkText(h) {
			fmt.Fprintln(q.out, paintHunkLine(q.colour, line))
		}
		answer, err := q.question(fmt.Sprintf("(%d/%d) take this hunk of %s", i+1, len(p.hunks), shownPath(p.change.Path)), "ynqad?")
		switch answer {
		case 'y':
			p.taken[i] = true
		case 'a':
			for j := i; j < len(p.hunks); j++ {
				p.taken[j] = true
			}
			return err
		case 'd':
			return err
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// question asks until one of the letters is the answer.
func (q *questions) question(what, letters string) (byte, error) {
	for {
		fmt.Fprintf(q.out, "%s [%s]? ", what, strings.Join(strings.Split(letters, ""), ","))
		line, err := q.in.ReadString('\n')
		line = strings.TrimSpace(line)
		switch {
		case line == "" && errors.Is(err, io.EOF):
			fmt.Fprintln(q.out)
			return 'q', errQuit
		case err != nil && !errors.Is(err, io.EOF):
			return 0, failed(err, "", "standard input: %v", cause(err))
		case line == "q":
			return 'q', errQuit
		case line == "?" || len(line) != 1 || !strings.Contains(letters, line):
			io.WriteString(q.out, askHelp)
			continue
		}
		return line[0], nil
	}
}

// commitChosen commits what was chosen, or says that it was nothing.
func (a *app) commitChosen(ch choice, commit func(supervisor.CommitRequest) error) error {
	req, ok := ch.request()
	if !ok {
		_, err := fmt.Fprintln(a.stdout, "nothing was taken, and nothing is committed")
		return err
	}
	return commit(req)
}

// hunkText is a hunk as a patch has it.
func hunkText(h workspace.Hunk) []string {
	head := fmt.Sprintf("@@ -%d,%d +%d,%d @@", h.From, h.FromLines, h.To, h.ToLines)
	return append([]string{head}, h.Lines...)
}

func paintHunkLine(colour bool, line string) string {
	if !colour || strings.HasPrefix(line, " ") {
		return line
	}
	switch line[:1] {
	case "+":
		return paint(true, green, line)
	case "-":
		return paint(true, red, line)
	}
	return paint(true, cyan, line)
}
