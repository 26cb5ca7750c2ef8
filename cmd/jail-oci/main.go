// Command jail-oci is an OCI runtime, which container engines start in place of runc. It makes
// containers only by a plan of jaild.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/runc"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// Keep the main goroutine on the main thread: libcontainer moves threads between namespaces.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) == 2 && os.Args[1] == runc.InitArg {
		runc.InitContainer()
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// defaultRoot holds the containers of engines that name no directory.
const defaultRoot = "/run/jail-oci"

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitNotExec is the code of an exec that started nothing, as runc's.
	exitNotExec = 255
)

const usage = `jail-oci is an OCI runtime over jail: a container engine starts it in place of runc.
jaild decides what a container gets.

usage: jail-oci [GLOBAL FLAGS] COMMAND [FLAGS] [ARG...]

  create ID        make a container from the config.json of the bundle; its process waits
  start ID         let the process of a created container run
  run ID           create and start, wait for the end, and delete
  state ID         print the state of a container as JSON
  kill ID [SIGNAL] send a signal (default TERM) to the first process
  delete ID        remove a container that has stopped
  exec ID CMD      run one more process in a container
  ps ID            list the processes of a container
  list             list the containers
  pause ID         freeze the processes of a container
  resume ID        continue the processes of a paused container
  features         print what of the runtime-spec is supported, as JSON

global flags, before the command:
  --root DIR            where the containers are kept (default ` + defaultRoot + `)
  --log FILE            where failures are written, besides standard error
  --log-format FORMAT   text or json
  --debug               write more to the log
  --systemd-cgroup      cgroupsPath is slice:prefix:name, and systemd makes the control group
  --version, --help

flags of create and run:
  --bundle DIR          directory of config.json (default .)
  --pid-file FILE       write the process number there
  --console-socket PATH send the terminal's other end over that socket
  --preserve-fds N      pass N descriptors above the standard streams
  --no-pivot            use chroot in place of pivot_root
  --no-new-keyring      keep the session keyring of the caller
  --detach              (run) return when the process has started
  --keep                (run) leave the container after its end: delete removes it

flags of exec:
  --process FILE        what to run, as JSON, in place of CMD
  --cwd DIR, --env K=V, --user UID[:GID], --tty
  --detach, --pid-file, --console-socket, --preserve-fds

flags of kill:   --all is ignored
flags of delete: --force kills the container first
flags of ps:     --format table|json
flags of list:   --format table|json, --quiet
`

// refusedCommands are the commands of runc that jail-oci refuses, with the reason.
var refusedCommands = map[string]string{
	"checkpoint": "the state of a container cannot be written down",
	"restore":    "the state of a container cannot be written down",
	"events":     "the control group of the container has its figures",
	"update":     "a container keeps the limits that it was made with",
	"spec":       "write config.json with the engine, or with runc spec",
}

// A global holds the flags before the command.
type global struct {
	containers runc.Containers
	stdout     io.Writer
}

// A usageError is an error in the command line.
type usageError struct{ error }

func misused(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

var commands = map[string]func(global, []string) (int, error){
	"create": create, "run": runContainer, "state": state, "kill": kill, "delete": remove,
	"start": acting("start", (*runc.Container).Start),
	"exec":  execute, "ps": ps, "list": list, "features": features,
	"pause":  acting("pause", (*runc.Container).Pause),
	"resume": acting("resume", (*runc.Container).Resume),
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("jail-oci", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	root := flags.String("root", defaultRoot, "")
	log := flags.String("log", "", "")
	format := flags.String("log-format", "text", "")
	debug := flags.Bool("debug", false, "")
	systemd := flags.Bool("systemd-cgroup", false, "")
	version := flags.Bool("version", false, "")
	flags.BoolVar(version, "v", false, "")
	// Rootless engines pass this flag.
	rootless := flags.String("rootless", "auto", "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp), err == nil && (flags.NArg() == 0 && !*version ||
		flags.Arg(0) == "help"):
		io.WriteString(stdout, usage)
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "jail-oci: error:", err)
		return exitUsage
	case *version:
		fmt.Fprintf(stdout, "jail-oci version %s\nspec: %s\n", wire.Version, runc.SpecVersion)
		return 0
	}
	err = openLog(*log, *format, *debug)
	if err != nil {
		fmt.Fprintln(stderr, "jail-oci: error:", err)
		return exitUsage
	}
	code, err := dispatch(global{stdout: stdout, containers: runc.Containers{Root: *root,
		Systemd: *systemd}}, *rootless, flags.Args())
	if errors.Is(err, flag.ErrHelp) {
		io.WriteString(stdout, usage)
		return 0
	}
	if err != nil {
		tell(stderr, err, *log != "", *format == "json")
		if code == 0 {
			code = exitFailed
		}
		if errors.As(err, &usageError{}) {
			code = exitUsage
		}
	}
	return code
}

// tell writes a failure to the log file and as text to stderr. Without a log file stderr is the
// log, as for runc: with --log-format json it gets one JSON object.
func tell(stderr io.Writer, err error, logged, asJSON bool) {
	hint := ""
	if h := (*hinted)(nil); errors.As(err, &h) {
		hint = h.hint
	}
	if logged || asJSON {
		runc.LogError(err, hint)
	}
	if !logged && asJSON {
		return
	}
	fmt.Fprintln(stderr, "jail-oci: error:", err)
	if hint != "" {
		fmt.Fprintln(stderr, "jail-oci: hint:", hint)
	}
}

func openLog(path, format string, debug bool) error {
	if format != "text" && format != "json" {
		return fmt.Errorf("--log-format %q: want text or json", format)
	}
	f := os.Stderr
	if path != "" {
		var err error
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_SYNC, 0o644); err != nil {
			return err
		}
	}
	runc.LogTo(f, format == "json", debug)
	return nil
}

func dispatch(g global, rootless string, args []string) (int, error) {
	if why, ok := refusedCommands[args[0]]; ok {
		return 0, misused("%s is not supported: %s", args[0], why)
	}
	command, ok := commands[args[0]]
	if !ok {
		return 0, misused("there is no command %q: jail-oci --help lists them", args[0])
	}
	if (rootless == "true" || os.Geteuid() != 0) && args[0] != "features" {
		return 0, errors.New("containers are made by root of the host: rootless engines are not " +
			"supported")
	}
	var err error
	if g.containers.Root, err = filepath.Abs(g.containers.Root); err != nil {
		return 0, err
	}
	if g.containers.Root == "/" {
		return 0, misused("--root is the root of the host")
	}
	if g.containers.Init, err = initPath(); err != nil {
		return 0, err
	}
	return command(g, args[1:])
}

// initPath returns the path of jail-init in a build or an installation.
func initPath() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(exe)
	for _, path := range []string{filepath.Join(dir, "jail-init"),
		filepath.Join(dir, "../libexec/jail/jail-init")} {
		if _, err = os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("jail-init is not there: install it beside jail-oci: %w", err)
}

// parse parses the flags of a command and returns its arguments, at most most. Unless most is 0, at
// least one, the id of a container, is needed.
func parse(flags *flag.FlagSet, args []string, most int) ([]string, error) {
	flags.SetOutput(io.Discard)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil, err
	} else if err != nil {
		return nil, misused("%s: %v", flags.Name(), err)
	}
	rest := flags.Args()
	if most == 0 && len(rest) > 0 || most > 0 && (len(rest) == 0 || len(rest) > most) {
		return nil, misused("%s: %d arguments: jail-oci --help shows how it is called", flags.Name(),
			len(rest))
	}
	if most > 0 && !validID(rest[0]) {
		return nil, misused("%s: %.80q is no id of a container", flags.Name(), rest[0])
	}
	return rest, nil
}

// validID reports whether id is a valid container id, which is used as a directory name.
func validID(id string) bool {
	return id != "." && id != ".." && id != "" && len(id) <= 1024 &&
		!slices.ContainsFunc([]byte(id), func(c byte) bool {
			return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
				strings.IndexByte("_+-.", c) >= 0)
		})
}
