package service

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// NewTop returns the command jail top.
func NewTop(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "show the resources that live runs use, continuously",
		Long: `Show what the live runs use: current CPU, peak memory, processes, fetches and
elapsed time. On a terminal the table is refreshed until you press q; in a pipe each refresh
prints a new table.`,
		Example: "  jail top\n  jail top -n 1 --json",
		Args:    command.Exactly(),
	}
	var asJSON bool
	command.JSON(cmd, &asJSON, "print one JSON object for each refresh, each on its own line")
	count := cmd.Flags().IntP("number", "n", 0, "end after so many refreshes (0: at q or Ctrl-C)")
	every := cmd.Flags().DurationP("delay", "d", time.Second, "time between refreshes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *count < 0 || *every < 50*time.Millisecond {
			return exit.Usage("jail top --help",
				"jail top: --number %d --delay %v: want no negative number, and at least 50ms",
				*count, *every)
		}
		return env.WithDaemon(cmd.Context(), func(c *api.Client) error {
			t := &top{env: env, client: c, asJSON: asJSON, left: *count, every: *every}
			return t.run(cmd.Context())
		})
	}
	return cmd
}

// A top shows the live runs repeatedly.
type top struct {
	env    *cli.Env
	client *api.Client
	asJSON bool
	// remaining refreshes, 0 for no end
	left  int
	every time.Duration

	// CPU milliseconds of each run at the last refresh
	before map[string]int64
	looked time.Time
}

// A look is the state of all runs at one refresh.
type look struct {
	Time time.Time `json:"time"`
	Runs []topRun  `json:"runs"`
}

type topRun struct {
	message.RunInfo
	// Percent of one CPU since the last refresh; at the first, since the run's start.
	CPU float64 `json:"cpu_percent"`
}

func (t *top) run(ctx context.Context) error {
	in, ok := t.env.Stdin.(*os.File)
	if t.asJSON || t.left == 1 || !ok || !terminal.Is(in) || !terminal.Is(t.env.Stdout) {
		return t.loop(ctx, nil, t.write)
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return exit.Failed(err, "", "the terminal: %v", exit.Cause(err))
	}
	io.WriteString(t.env.Stdout, "\x1b[?1049h\x1b[?25l")
	defer func() {
		io.WriteString(t.env.Stdout, "\x1b[?25h\x1b[?1049l")
		_ = term.Restore(int(in.Fd()), before)
	}()
	keys := make(chan byte)
	go func() {
		one := make([]byte, 1)
		for {
			if _, err := in.Read(one); err != nil {
				close(keys)
				return
			}
			keys <- one[0]
		}
	}()
	return t.loop(ctx, keys, func(l look) error { return t.draw(in, l) })
}

// loop calls show with the runs until the last refresh, or until a key ends it.
func (t *top) loop(ctx context.Context, keys <-chan byte, show func(look) error) error {
	for {
		l, err := t.look(ctx)
		if err == nil {
			err = show(l)
		}
		if err != nil {
			return err
		}
		if t.left--; t.left == 0 {
			return nil
		}
		timer := time.NewTimer(t.every)
		select {
		case <-ctx.Done():
			return nil
		case key, open := <-keys:
			// ^C and ^D: the terminal is raw
			if !open || key == 'q' || key == 3 || key == 4 {
				return nil
			}
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (t *top) look(ctx context.Context) (look, error) {
	runs, err := t.client.Runs(ctx)
	if err != nil {
		return look{}, err
	}
	l := look{Time: time.Now(), Runs: []topRun{}}
	used := map[string]int64{}
	for _, r := range runs {
		one := topRun{RunInfo: r}
		if r.Usage != nil {
			used[r.ID] = r.Usage.CPUMS
			passed, cpu := l.Time.Sub(t.looked), r.Usage.CPUMS
			if was, seen := t.before[r.ID]; seen {
				cpu -= was
			} else {
				passed = l.Time.Sub(r.Started)
			}
			if passed > 0 {
				one.CPU = 100 * float64(cpu) / float64(max(passed.Milliseconds(), 1))
			}
		}
		l.Runs = append(l.Runs, one)
	}
	t.before, t.looked = used, l.Time
	return l, nil
}

func (t *top) write(l look) error {
	if t.asJSON {
		return t.env.PrintLine(l)
	}
	return t.env.Print(func(w io.Writer) { output.Table(w, topRows(l)) })
}

func topRows(l look) [][]string {
	rows := [][]string{{"ID", "SESSION", "UID", "STATE", "CPU", "TIME", "MEMORY", "PIDS", "FETCHES",
		"IN", "OUT", "TOOL"}}
	names := map[string]string{}
	for _, r := range l.Runs {
		names[r.GlobalID] = r.ID
	}
	for _, r := range l.Runs {
		// The jail that holds a session is not in one.
		session := "-"
		if r.Session != "" && r.Session != r.GlobalID && r.Session != r.ID {
			session = cmp.Or(names[r.Session], r.Session)
		}
		row := []string{r.ID, session, strconv.FormatUint(uint64(r.UID), 10), "starts", "-",
			output.Age(r.Started), "-", "-", "-", "-", "-", strings.Join(append([]string{r.Tool},
				r.Args...), " ")}
		if u := r.Usage; u != nil {
			row[3], row[4], row[6], row[7] = "runs", fmt.Sprintf("%.1f%%", r.CPU),
				output.Size(u.MemoryPeak), strconv.FormatInt(u.PIDsPeak, 10)
			row[8], row[9], row[10] = strconv.FormatInt(u.FetchRequests, 10),
				output.Size(u.FetchBytesIn), output.Size(u.FetchBytesOut)
		}
		rows = append(rows, row)
	}
	return rows
}

// draw shows a look on the whole terminal screen.
func (t *top) draw(in *os.File, l look) error {
	columns, lines, err := term.GetSize(int(in.Fd()))
	if err != nil || columns < 20 || lines < 5 {
		columns, lines = 80, 24
	}
	var text strings.Builder
	output.Table(&text, topRows(l))
	_, err = io.WriteString(t.env.Stdout,
		topScreen(text.String(), len(l.Runs), l.Time, columns, lines, t.env.Colour()))
	return err
}

func topScreen(text string, runs int, now time.Time, columns, lines int, colour bool) string {
	var b strings.Builder
	b.WriteString("\x1b[H\x1b[2J")
	b.WriteString(terminal.Paint(colour, terminal.Bold, cut(fmt.Sprintf("jail top  %s  %s  q quit",
		now.Format(time.TimeOnly), output.Count(runs, "run", "runs")), columns-1)) + "\r\n")
	at := 1
	for line := range strings.Lines(text) {
		if at++; at >= lines {
			break
		}
		line = cut(strings.TrimRight(line, "\n"), columns-1)
		if at == 2 {
			line = terminal.Paint(colour, terminal.Cyan, line)
		}
		b.WriteString(line + "\r\n")
	}
	return b.String()
}

// cut shortens a line without escape sequences to n characters.
func cut(line string, n int) string {
	if utf8.RuneCountInString(line) <= n {
		return line
	}
	runes := []rune(line)
	return string(runes[:max(0, n-1)]) + "…"
}
