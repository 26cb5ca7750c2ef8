package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/console"
)

const consoleAbout = `Review runs in a browser: live runs, the history of a run, its changes hunk by hunk, what waits for an approval, the audit log, and the effect of a policy. The command prints a link
that logs in once, within ten minutes; on a terminal, Enter prints another link. The console listens only on the loopback interface or on a Unix socket
and has your rights, like every other command. Ctrl-C ends it.

From another machine, forward the same port on both sides:
  ssh -L 8080:127.0.0.1:8080 HOST jail console --listen 127.0.0.1:8080
or forward a socket that --socket made:
  ssh -L 8080:PATH HOST`

type consoleFlags struct {
	listen, socket string
	noOpen, json   bool
}

// NewConsole returns the command jail console.
func NewConsole(env *cli.Env) *cobra.Command {
	var f consoleFlags
	cmd := &cobra.Command{
		Use:   "console [flags]",
		Short: "review in a browser",
		Long:  consoleAbout,
		Example: "  jail console\n  jail console --listen 127.0.0.1:8080 --no-open\n" +
			"  jail console --socket ~/console.sock",
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.Exclusive(cmd, "listen", "socket"); err != nil {
				return err
			}
			return env.WithDaemon(cmd.Context(),
				func(c *api.Client) error { return runConsole(cmd.Context(), env, c, f) })
		},
	}
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:0",
		"listen on `ADDRESS`: 127.0.0.1 or [::1] and a port; port 0 picks a free one")
	cmd.Flags().StringVar(&f.socket, "socket", "",
		"listen on a Unix socket at `PATH` instead of an address")
	cmd.Flags().BoolVar(&f.noOpen, "no-open", false, "print the link without opening a browser")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the link as an object")
	return cmd
}

// A consoleLink is the login link of the console, as --json prints it.
type consoleLink struct {
	URL    string    `json:"url,omitempty"`
	Socket string    `json:"socket,omitempty"`
	Path   string    `json:"path"` // of the login
	Until  time.Time `json:"until"`
}

func runConsole(ctx context.Context, env *cli.Env, c *api.Client, f consoleFlags) (err error) {
	l, hosts, err := consoleListener(f)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := l.Close(); closeErr != nil && !errors.Is(closeErr, net.ErrClosed) &&
			err == nil {
			err = closeErr
		}
	}()
	env.FindLog(ctx)
	con, err := console.New(console.Options{Daemon: c, Approvals: c.Approvals(),
		Log: console.Dir(env.Config.LogDir), Policies: consolePolicies{env},
		Agents: consoleAgents(env), Hosts: hosts})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	link, err := tellLink(env, con, f, hosts)
	if err != nil {
		return err
	}
	if !f.json {
		output.Say(env.Stderr, "hint", "the link is good once, until "+
			link.Until.Format("15:04:05")+"; Ctrl-C ends the console")
	}
	if !f.noOpen && !f.json && link.URL != "" && hasBrowser(env) {
		remove, err := openBrowser(env, link.URL)
		if err != nil {
			output.Say(env.Stderr, "warning", "no browser could be opened: "+err.Error())
		}
		defer remove()
	}
	if terminal.Is(env.Stdin) && !f.json {
		go moreLinks(env, con, f, hosts)
	}
	return con.Serve(ctx, l)
}

// consoleAgents returns a function that connects to the user's jail-agentd, and starts it if none
// answers.
func consoleAgents(env *cli.Env) func(context.Context) (console.Agents, error) {
	return func(ctx context.Context) (console.Agents, error) {
		c, _, err := agentapi.Connect(ctx, agentapi.Options{Places: agentapi.PlacesOf(env.Getenv),
			Program: agentapi.Program(env.Exe), State: env.Getenv("JAIL_STATE")})
		return c, err
	}
}

// consoleListener listens on a Unix socket for this user or on the loopback interface. hosts are
// the addresses for the latter, else nil.
func consoleListener(f consoleFlags) (l net.Listener, hosts []string, err error) {
	if f.socket != "" {
		if l, err = console.ListenUnix(f.socket); err != nil {
			return nil, nil, exit.Failed(err, "name a path at which nothing is", "console: %v", err)
		}
		return l, nil, nil
	}
	address, ok := console.Loopback(f.listen)
	if !ok {
		return nil, nil, exit.Usage("from another machine: ssh -L 8080:127.0.0.1:8080 HOST",
			"--listen %s: want 127.0.0.1:PORT or [::1]:PORT; the console answers on no other "+
				"interface", f.listen)
	}
	if l, err = net.Listen("tcp", address.String()); err != nil {
		return nil, nil, exit.Failed(err, "--listen 127.0.0.1:0 takes a port that is free",
			"console: %v", err)
	}
	return l, []string{l.Addr().String()}, nil
}

// tellLink makes a new login link, prints it and returns it.
func tellLink(env *cli.Env, con *console.Console, f consoleFlags,
	hosts []string) (consoleLink, error) {
	path, until := con.Link()
	link := consoleLink{Path: path, Until: until}
	text := ""
	if hosts != nil {
		link.URL = "http://" + hosts[0] + path
		text = link.URL
	} else {
		if abs, err := filepath.Abs(f.socket); err == nil {
			f.socket = abs
		}
		link.Socket = f.socket
		text = "http://127.0.0.1:8080" + path
	}
	if f.json {
		return link, env.PrintJSON(link)
	}
	if _, err := fmt.Fprintln(output.Named(env.Stdout, "standard output"), text); err != nil {
		return link, err
	}
	if hosts == nil {
		output.Say(env.Stderr, "hint", "after ssh -L 8080:"+link.Socket+
			" HOST, or with another port in the link")
	}
	return link, nil
}

// moreLinks prints a new link for each line read from the terminal.
func moreLinks(env *cli.Env, con *console.Console, f consoleFlags, hosts []string) {
	lines := bufio.NewScanner(env.Stdin)
	for lines.Scan() {
		if _, err := tellLink(env, con, f, hosts); err != nil {
			return
		}
	}
}

// hasBrowser reports whether a browser can be opened on a desktop. It is false for root.
func hasBrowser(env *cli.Env) bool {
	_, err := exec.LookPath("xdg-open")
	return err == nil && terminal.Is(env.Stdout) && os.Geteuid() != 0 &&
		(env.Getenv("DISPLAY") != "" || env.Getenv("WAYLAND_DISPLAY") != "")
}

// openBrowser opens a login link in a browser. The link is passed in a file that only its owner can
// read, since every user can read the arguments of a process. Call remove to delete the file.
func openBrowser(env *cli.Env, url string) (remove func(), err error) {
	dir, err := os.MkdirTemp(env.Getenv("XDG_RUNTIME_DIR"), "jail-console-")
	if err != nil {
		return func() {}, err
	}
	remove = func() { os.RemoveAll(dir) }
	file := filepath.Join(dir, "open.html")
	page := `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url=` + url + `"><a href="` + url + `">jail console</a>` +
		"\n"
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		return remove, err
	}
	cmd := exec.Command("xdg-open", file)
	if err := cmd.Start(); err != nil {
		return remove, err
	}
	// The exit status of xdg-open says nothing about the browser.
	go func() { _ = cmd.Wait() }()
	return remove, nil
}

// consolePolicies explains profiles by name, as jail policy explain does.
type consolePolicies struct{ env *cli.Env }

func (p consolePolicies) Profiles() []console.Profile {
	var list []console.Profile
	for _, text := range complete.Profiles(p.env) {
		name, about, _ := strings.Cut(text, "\t")
		list = append(list, console.Profile{Name: name, About: about})
	}
	return list
}

func (p consolePolicies) Explain(profile string) (meaning.Explanation, error) {
	sources, err := policies.Layers(p.env, profile, policies.Of{})
	if err != nil {
		return meaning.Explanation{}, err
	}
	return meaning.Explain(sources)
}

func (p consolePolicies) Why(profile, question string) (meaning.Answer, error) {
	sources, err := policies.Layers(p.env, profile, policies.Of{})
	if err != nil {
		return meaning.Answer{}, err
	}
	return policies.Why(p.env, question, sources)
}
