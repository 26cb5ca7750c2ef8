// Package review has the commands that show, commit, discard and revert what runs changed.
package review

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A pick is one change with what was chosen of it.
type pick struct {
	change api.Change
	hunks  []workspace.Hunk
	// Of its hunks, or one for a change without any.
	taken []bool
}

// A choice is a whole review, from which someone chooses.
type choice struct {
	picks  []pick
	digest string
}

// maxChoice is how many changes are chosen from by hand.
const maxChoice = 20000

// review reads a review with its hunks, what needs attention first.
func review(ctx context.Context, c *api.Client, id string) (ch choice, err error) {
	for line, err := range c.Changes(ctx, id, api.PatchHunks) {
		switch {
		case err != nil:
			return ch, err
		case line.Change != nil:
			if len(ch.picks) == maxChoice {
				return ch, exit.Failed(nil, "name paths, patterns or classes instead",
					"there are more than %d changes to choose from by hand", maxChoice)
			}
			ch.picks = append(ch.picks, pick{change: *line.Change, taken: make([]bool, 1)})
		case line.Hunks != nil && len(ch.picks) > 0:
			p := &ch.picks[len(ch.picks)-1]
			p.hunks, p.taken = line.Hunks.Hunks, make([]bool, len(line.Hunks.Hunks))
		case line.Summary != nil:
			ch.digest = line.Summary.Digest
		}
	}
	slices.SortStableFunc(ch.picks, func(a, b pick) int {
		_, x := attention(a.change)
		_, y := attention(b.change)
		return x - y
	})
	return ch, nil
}

// open reports whether there is anything to choose about a change.
func (p pick) open() bool { return p.change.Refused == "" }

func (p pick) count() (taken int) {
	for _, t := range p.taken {
		if t {
			taken++
		}
	}
	return taken
}

// request returns the request to commit exactly what was chosen. ok is false where nothing was. A
// protected name that was chosen counts as named.
func (ch choice) request() (req shadows.CommitRequest, ok bool) {
	req = shadows.CommitRequest{Digest: ch.digest, Exact: true, IncludeProtected: true,
		Hunks: map[string][]int{}}
	for _, p := range ch.picks {
		path := p.change.Path.String()
		switch n := p.count(); {
		case n == 0 || !p.open():
		case n == len(p.taken):
			req.Paths = append(req.Paths, path)
		default:
			for i, t := range p.taken {
				if t {
					req.Hunks[path] = append(req.Hunks[path], i)
				}
			}
		}
	}
	return req, len(req.Paths) > 0 || len(req.Hunks) > 0
}

const askHelp = `y  take it
n  leave it
a  take it and all that follows in this file
d  leave it and all that follows in this file
q  leave it and all that follows, and commit what was taken
?  show this
`

// errQuit ends the questions.
var errQuit = errors.New("quit")

// ask asks about each hunk, and about each change without hunks, as git add -p does. The end of the
// input counts as q. Only what was answered with yes is taken.
func ask(env *cli.Env, ch choice) error {
	q := &questions{in: bufio.NewReader(env.Stdin), out: env.Stdout, colour: env.Colour()}
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
		fmt.Fprintf(q.out, "  %s %s\n", terminal.Paint(q.colour, terminal.Amber, string(r.Class)+
			":"), output.Printable(r.Why))
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
		answer, err := q.question(fmt.Sprintf("(%d/%d) take this hunk of %s", i+1, len(p.hunks),
			shownPath(p.change.Path)), "ynqad?")
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
			return 0, exit.Failed(err, "", "standard input: %v", exit.Cause(err))
		case line == "q":
			return 'q', errQuit
		case line == "?" || len(line) != 1 || !strings.Contains(letters, line):
			io.WriteString(q.out, askHelp)
			continue
		}
		return line[0], nil
	}
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
		return terminal.Paint(true, terminal.Green, line)
	case "-":
		return terminal.Paint(true, terminal.Red, line)
	}
	return terminal.Paint(true, terminal.Cyan, line)
}
