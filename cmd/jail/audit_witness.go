package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/witness"
)

func (a *app) auditWitnessCommand() *cobra.Command {
	return a.group("witness", "watch that the logs of other hosts only grow", a.witnessServeCommand(), a.witnessTrustCommand(), a.witnessForgetCommand(),
		a.witnessListCommand(), a.witnessShowCommand(), a.witnessKeyCommand())
}

// witnessFlags are those that all of them have.
type witnessFlags struct{ dir, name *string }

func (a *app) witnessDir(cmd *cobra.Command) witnessFlags {
	return witnessFlags{cmd.Flags().String("dir", "", "`DIR` of the witness: its key, and what it has seen (default witness in the state directory)"), new(string)}
}

func (f witnessFlags) named(cmd *cobra.Command) witnessFlags {
	f.name = cmd.Flags().String("name", "", "`NAME` of the witness where it has none yet, such as witness.example.com/1 (default HOST/witness)")
	return f
}

// open opens the witness's directory.
func (f witnessFlags) open(a *app, cosign bool) (*audit.Witness, error) {
	dir := *f.dir
	if dir == "" {
		dir = filepath.Join(a.config.StateDir, "witness")
	}
	w, err := audit.OpenWitness(dir, *f.name, cosign)
	if err != nil {
		return nil, failed(err, "--dir names another directory", "witness %s: %v", dir, cause(err))
	}
	return w, nil
}

// with does something with an open witness that cosigns nothing.
func (f witnessFlags) with(a *app, do func(w *audit.Witness) error) error {
	w, err := f.open(a, false)
	if err != nil {
		return err
	}
	return errors.Join(do(w), w.Close())
}

func (a *app) witnessServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "answer logs that ask to have their heads cosigned",
		Long: `Answer the logs of other hosts, over HTTP as C2SP tlog-witness has it (https://c2sp.org/tlog-witness): a head that goes on from the last one is cosigned, one that takes
records back or changes them is refused, and a line on standard error says so. Only logs that jail audit witness trust has named are answered. It reads no records, needs no
secrets on the way and no rights, and is best run by a user of its own on a host that has nothing to do with those of the logs. It ends with Ctrl-C.

On the other hosts, in ` + supervisorAudit + `: an [[anchor]] with to = "witness+http://THIS-HOST:8441/" and key = the file with what jail audit witness key prints here.`,
		Example: "  jail audit witness serve --dir /var/lib/jail-witness --listen 192.0.2.7:8441",
		Args:    exactly(),
	}
	f := a.witnessDir(cmd).named(cmd)
	listen := cmd.Flags().String("listen", "127.0.0.1:8441", "answer on `ADDRESS`: a host and a port; port 0 is any that is free")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		w, err := f.open(a, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return failed(err, "--listen names another address", "witness: %v", err)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		if _, err := fmt.Fprintf(sink{a.stdout, "standard output"}, "http://%s/ %s\n", l.Addr(), w.PublicKey()); err != nil {
			return errors.Join(err, l.Close())
		}
		return a.serveWitness(ctx, l, w)
	}
	return cmd
}

func (a *app) serveWitness(ctx context.Context, l net.Listener, w *audit.Witness) error {
	lines := make(chan string, 64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for line := range lines {
			say(a.stderr, "warning", time.Now().UTC().Format(time.RFC3339)+" "+line)
		}
	}()
	err := witness.Serve(ctx, l, w, func(line string) {
		select {
		case lines <- line:
		default: // so many strangers are refused at once that nobody reads it
		}
	})
	if err == nil || errors.Is(err, context.Canceled) {
		err = nil
		close(lines)
		<-done
	}
	return err
}

func (a *app) witnessTrustCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust FILE...",
		Short: "watch the log that a public key is of",
		Long: `Have the witness watch the log whose public key is in a file, as jail audit key prints it on the log's host; - is standard input. Of several keys in a file, the eldest first,
the last one counts, and it takes the place of the one that was known of that log: so it is after jail audit rotate. A running witness needs no restart.`,
		Example: "  ssh root@build1 jail audit key | jail audit witness trust -",
		Args:    atLeast("FILE"),
	}
	f := a.witnessDir(cmd).named(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return f.with(a, func(w *audit.Witness) error {
			for _, file := range args {
				var text []byte
				var err error
				if file == "-" {
					text, err = io.ReadAll(io.LimitReader(a.stdin, 1<<20))
				} else {
					text, err = readBounded(file)
				}
				var origin string
				if err == nil {
					origin, err = w.Trust(string(text))
				}
				if err != nil {
					e := describe(err)
					e.Message = fmt.Sprintf("key %s: %v", file, cause(err))
					return e
				}
				if _, err := fmt.Fprintf(sink{a.stdout, "standard output"}, "watching %s\n", audit.Printable(origin)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}

func (a *app) witnessForgetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "forget LOG",
		Short:   "watch a log no more",
		Long:    "Have the witness answer the log of that name no more. What it has seen of it stays, and counts again when the log is trusted once more.",
		Example: "  jail audit witness forget jail-audit/3f9a51c07d2e",
		Args:    exactly("LOG"),
	}
	f := a.witnessDir(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return f.with(a, func(w *audit.Witness) error {
			err := w.Forget(args[0])
			if errors.Is(err, fs.ErrNotExist) {
				return notFound("jail audit witness list", "witness: it watches no log %q", args[0])
			}
			return err
		})
	}
	return cmd
}

func (a *app) witnessListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list [flags]",
		Short:   "list the logs that are watched",
		Long:    "List the logs that the witness watches, with how many records the newest head had that it cosigned, and when that was.",
		Example: "  jail audit witness list\n  jail audit witness list --json",
		Args:    exactly(),
	}
	f := a.witnessDir(cmd)
	asJSON := jsonFlag(cmd, "print a list")
	cmd.RunE = func(*cobra.Command, []string) error {
		return f.with(a, func(w *audit.Witness) error {
			logs, err := w.Logs()
			if err != nil {
				return failed(err, "", "witness: %v", err)
			}
			return a.show(*asJSON, logs, func(out io.Writer) error {
				rows := [][]string{{"LOG", "RECORDS", "COSIGNED"}}
				for _, l := range logs {
					at := "never"
					if !l.Time.IsZero() {
						at = l.Time.Format(time.RFC3339)
					}
					rows = append(rows, []string{audit.Printable(l.Origin), fmt.Sprint(l.Size), at})
				}
				return table(out, rows)
			})
		})
	}
	return cmd
}

func (a *app) witnessShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show LOG",
		Short: "print the newest head of a log that was cosigned",
		Long: `Print the newest head of a log that the witness has cosigned, as a note with both signatures: what jail audit verify --anchor takes. It is also at
http://WITNESS/checkpoint/LOG.`,
		Example: "  jail audit witness show jail-audit/3f9a51c07d2e > build1.note\n  jail audit verify --log copy --key audit.pub --anchor build1.note --witness witness.pub",
		Args:    exactly("LOG"),
	}
	f := a.witnessDir(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return f.with(a, func(w *audit.Witness) error {
			text, err := w.Seen(args[0])
			var none *audit.WitnessError
			if errors.As(err, &none) {
				return notFound("jail audit witness list", "witness: %v", err)
			}
			if err != nil {
				return failed(err, "", "witness: %v", err)
			}
			return a.print(func(out io.Writer) error {
				_, err := out.Write(text)
				return err
			})
		})
	}
	return cmd
}

func (a *app) witnessKeyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "key [flags]",
		Short:   "print the public key of the witness",
		Long:    "Print the public key of the witness, and make it one where it has none. The hosts of the logs take it, and whoever verifies them.",
		Example: "  jail audit witness key --name witness.example.com/1 > witness.pub",
		Args:    exactly(),
	}
	f := a.witnessDir(cmd).named(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		return f.with(a, func(w *audit.Witness) error {
			return a.print(func(out io.Writer) error {
				_, err := fmt.Fprintln(out, w.PublicKey())
				return err
			})
		})
	}
	return cmd
}

// witnessKeys reads the public keys of witnesses.
func witnessKeys(files []string) (string, error) {
	var all string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = audit.CheckWitnessKeys(string(text))
		}
		if err != nil {
			e := describe(err)
			e.Message = fmt.Sprintf("--witness %s: %v", file, cause(err))
			return "", e
		}
		all += string(text) + "\n"
	}
	return all, nil
}
