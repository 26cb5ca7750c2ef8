package policy

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/learn"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/policy/syntax"
)

const profileNewAbout = `Write a profile. It includes another profile, or starts as a copy of a policy file (for example from jail policy learn), and adds what the flags say.
The file has comments and starts with the command that it is for. It is checked before it is written, and replaces an existing file only with --force.

--allow-tool grants only the named bundle tools, and no .wasm files; --add-tool grants the named tools in addition to those of the other profile.
--from-here includes the profile build and adds what the tools of this directory need beside it: the toolchains on your PATH, as read-only mounts, and caches for the project's package managers. It shows them and asks. It leaves out your home directory, the usual places of keys, and each toolchain that another user can write to, at its top or in its bin and lib; what lies deeper is not looked at.
--native grants host programs, together with what they need: read access to /usr, memory for their files, and a PATH.`

type newProfile struct {
	name, about, from, access, run string
	tools, added                   []string
	native, read, hosts, lim       []string
	output                         string
	force, yes, json               bool

	fromHere bool
	here     *surrounding
}

func newProfileNew(env *cli.Env) *cobra.Command {
	var f newProfile
	cmd := &cobra.Command{
		Use:   "new [flags] [NAME]",
		Short: "write a profile",
		Long:  profileNewAbout,
		Example: "  jail profile new docs --allow-tool core-utils/grep --access read --limit " +
			"memory=64MiB\n" +
			"  jail profile new lint --native /usr/bin/python3 --run 'python3 lint.py'\n" +
			"  jail profile new --from-here\n" +
			"  jail profile new mine --from ./learnt.toml -o /etc/jail/profiles/mine.toml",
		Args: func(cmd *cobra.Command, args []string) error {
			if f.fromHere {
				return command.AtMost(1)(cmd, args)
			}
			return command.Exactly("NAME")(cmd, args)
		},
	}
	set := cmd.Flags()
	set.SortFlags = false
	set.StringVar(&f.from, "from", "",
		"profile `NAME` to include (default default), or policy FILE to start from a copy of")
	set.BoolVar(&f.fromHere, "from-here", false,
		"add the toolchains on your PATH and the caches of this directory; NAME is that of the "+
			"directory")
	set.StringVar(&f.about, "about", "", "one `SENTENCE` that says what the profile is for")
	set.StringVar(&f.run, "run", "", "the `COMMAND` that the profile is for")
	set.StringArrayVar(&f.tools, "allow-tool", nil,
		"grant `BUNDLE/COMMAND`, and no other bundle tools (repeatable)")
	set.StringArrayVar(&f.added, "add-tool", nil,
		"grant `BUNDLE/COMMAND` in addition to those of --from (repeatable)")
	set.StringArrayVar(&f.native, "native", nil,
		"grant the host program at `PATH` (repeatable)")
	set.StringVar(&f.access, "access", "", "access to the workspace: `none|read|shadow`")
	set.StringArrayVar(&f.read, "read", nil, "mount `DIR` of the host read-only (repeatable)")
	set.StringArrayVar(&f.hosts, "fetch", nil, "grant GET and HEAD to `HOST[:PORT]` (repeatable)")
	set.StringArrayVar(&f.lim, "limit", nil,
		"a limit, such as memory=64MiB (`KEY=VALUE`, repeatable)")
	set.StringVarP(&f.output, "output", "o", "", "write to `FILE` (default NAME.toml)")
	set.BoolVar(&f.force, "force", false, "replace a file that exists")
	set.BoolVar(&f.yes, "yes", false, "ask nothing; without other flags, include the profile default without changes")
	set.BoolVar(&f.json, "json", false,
		"print an object: the file, its text, its warnings and its score")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			f.name = args[0]
		}
		return writeProfile(env, &f)
	}
	return cmd
}

// shaped reports whether a flag determines the content of the profile.
func (f *newProfile) shaped() bool {
	return f.fromHere || f.from+f.about+f.run+f.access != "" ||
		len(f.tools)+len(f.added)+len(f.native)+len(f.read)+len(f.hosts)+len(f.lim) > 0
}

func writeProfile(env *cli.Env, f *newProfile) error {
	if f.fromHere {
		dir, err := os.Getwd()
		if err != nil {
			return exit.Failed(err, "", "the working directory: %v", exit.Cause(err))
		}
		f.here = &surrounding{Directory: dir}
		f.name, f.from = cmp.Or(f.name, nameFrom(dir, "here")), cmp.Or(f.from, buildProfile)
	}
	if err := syntax.CheckName(f.name); err != nil {
		return exit.Usage("", "%v", err)
	}
	f.output = cmp.Or(f.output, f.name+".toml")
	if _, err := os.Lstat(f.output); err == nil && !f.force {
		return exit.Usage("--force replaces it, -o writes elsewhere", "%s exists", f.output)
	}
	if !f.shaped() && !f.yes {
		return exit.Usage(
			"--from --about --run --allow-tool --add-tool --native --access --read --fetch "+
				"--limit say what it grants; --yes takes the profile default as it is",
			"jail profile new: no flag says what %s grants", f.name)
	}
	text, file, err := profileText(env, f)
	if err != nil {
		return err
	}
	if f.here != nil {
		if err := f.here.confirm(env, f); err != nil {
			return err
		}
	}
	if err := policies.Write(f.output, text, f.force); err != nil {
		return err
	}
	return tellProfile(env, f, text, file)
}

// tellProfile prints the file's name and score, and warnings about its weaknesses.
func tellProfile(env *cli.Env, f *newProfile, text string, file syntax.File) error {
	s := meaning.Measure(file.Policy, reachableCalls(file.Policy))
	warnings := file.Policy.Warnings()
	if f.json {
		return env.PrintJSON(struct {
			Name     string   `json:"name"`
			File     string   `json:"file"`
			Policy   string   `json:"policy"`
			Warnings []string `json:"warnings"`
			Score    int      `json:"score"`

			Here *surrounding `json:"here,omitempty"`
		}{f.name, f.output, text, append([]string{}, warnings...), s.Points, f.here})
	}
	for _, w := range warnings {
		output.Say(env.Stderr, "warning", w)
	}
	return env.Print(output.Text("wrote %s, exposure %d of 100: jail policy explain %s\n",
		output.Printable(f.output), s.Points, output.Printable(asPath(f.output))))
}

// asPath returns a file's name in a form that is not taken for a profile's name.
func asPath(file string) string {
	if policies.NamesFile(file) && strings.Contains(file, "/") {
		return file
	}
	return "./" + file
}

// profileText returns the text of the profile, and the file parsed from it.
func profileText(env *cli.Env, f *newProfile) (string, syntax.File, error) {
	f.from = cmp.Or(f.from, "default")
	set, base, err := policies.OpenAlone(env, f.from)
	if err != nil {
		return "", base, err
	}
	text := []byte(f.skeleton(base))
	if policies.NamesFile(f.from) {
		if text, err = f.copied(); err != nil {
			return "", base, err
		}
	}
	edits, err := f.edits(base.Policy)
	if err != nil {
		return "", base, err
	}
	if f.here != nil {
		if f.here, err = lookAround(env, f.here.Directory, base.Policy,
			asuser.Home(uint32(os.Geteuid()))); err != nil {
			return "", base, err
		}
		more, err := f.here.edits()
		if err != nil {
			return "", base, err
		}
		edits = append(edits, more...)
	}
	for _, e := range edits {
		if text, err = e.apply(text); err != nil {
			return "", base, exit.Usage("write it by hand", "%v", err)
		}
	}
	file, err := set.Parse(syntax.Profile, f.output, text)
	if err != nil {
		return "", file, exit.Usage("nothing was written: give other flags, or begin with another "+
			"profile by --from", "the profile that the flags ask for is wrong: %v", err)
	}
	if _, err := policies.UnderCeiling(env, set,
		file.Layer("profile "+file.Name, file.Source)); err != nil {
		return "", file, err
	}
	return string(text), file, nil
}

// An addition is a change to the file, with its reason.
type addition struct {
	syntax.Edit
	why string
}

// apply makes the change. The reason becomes a comment above a table.
func (e addition) apply(text []byte) ([]byte, error) {
	if !e.Table {
		return e.Edit.Apply(text)
	}
	return append(slices.Clip(text), "\n# "+output.Printable(e.why)+"\n"+
		strings.Join(e.Lines(), "\n")+"\n"...), nil
}

func (f *newProfile) meantRun() string {
	run := f.run
	switch {
	case run != "":
	case len(f.native) > 0:
		run = f.native[0]
	case len(f.tools)+len(f.added) > 0:
		_, run, _ = strings.Cut(slices.Concat(f.tools, f.added)[0], "/")
	default:
		run = "TOOL"
	}
	return "jail run --policy " + f.output + " -- " + run
}

func (f *newProfile) sentence() string {
	if f.about != "" {
		return f.about
	}
	return "As " + strings.TrimSuffix(filepath.Base(f.from), ".toml") + ", with changes."
}

// skeleton returns the text of a profile that includes another.
func (f *newProfile) skeleton(base syntax.File) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s", output.Printable(f.meantRun()))
	line("#")
	line("# What %s grants, and what is said here. jail policy explain %s shows it whole.",
		output.Printable(f.from), output.Printable(asPath(f.output)))
	line("\npolicy = 1")
	line("name = %s", syntax.Quote(f.name))
	line("about = %s", syntax.Quote(f.sentence()))
	line("include = [%s]", syntax.Quote(f.from))
	if len(f.tools) > 0 {
		line("\n# Those tools and no others: what is inherited is taken out.")
		line("[without]")
		for _, x := range []struct {
			key  string
			list policy.Globs
		}{{"tools.allow", base.Policy.Tools.Allow}, {"tools.modules", base.Policy.Tools.Modules}} {
			if len(x.list) > 0 {
				line("%s = %s", x.key, syntax.List(x.list.Strings()))
			}
		}
	}
	return b.String()
}

// copied returns the text of the policy file that the profile starts from, under the new name.
func (f *newProfile) copied() ([]byte, error) {
	text, err := policies.Read(f.from)
	if err != nil {
		return nil, err
	}
	line, rest, _ := strings.Cut(string(text), "\n")
	run := f.meantRun()
	if _, tool, old := strings.Cut(line, " -- "); old && strings.HasPrefix(line, "# jail run ") {
		text = []byte(rest)
		// The command that the policy was learned from is the one that it is for.
		if f.run == "" {
			run = "jail run --policy " + f.output + " -- " + strings.TrimSpace(tool)
		}
	}
	edits := []syntax.Edit{{Key: "name", Value: syntax.Quote(f.name)}}
	if f.about != "" {
		edits = append(edits, syntax.Edit{Key: "about", Value: syntax.Quote(f.about)})
	}
	for _, e := range edits {
		if text, err = e.Apply(text); err != nil {
			return nil, exit.Usage("write it by hand", "%v", err)
		}
	}
	return append([]byte("# "+output.Printable(run)+"\n"), text...), nil
}

// edits returns the changes that the flags ask for.
func (f *newProfile) edits(base policy.Policy) ([]addition, error) {
	var out []addition
	add := func(why string, e syntax.Edit) { out = append(out, addition{e, why}) }
	if f.access != "" {
		add("", syntax.SetKey("workspace", "access", f.access))
		if f.access == policy.WorkspaceShadow.String() &&
			base.Workspace.Access < policy.WorkspaceShadow {
			add("", syntax.SetKey("workspace", "commit", "ask"))
		}
	}
	for _, t := range slices.Concat(f.tools, f.added) {
		if !strings.Contains(t, "/") {
			return nil, exit.Usage("jail tool list", "tool %s: want BUNDLE/COMMAND", t)
		}
		add("", syntax.AddItem("tools", "allow", t))
	}
	if err := f.nativeEdits(base, add); err != nil {
		return nil, err
	}
	for _, dir := range f.read {
		path, err := readPath(dir)
		if err != nil {
			return nil, err
		}
		add("Asked for with --read.",
			syntax.AddMount(policy.Mount{Source: path, Target: path, Access: policy.Read}))
	}
	if err := f.fetchEdits(base, add); err != nil {
		return nil, err
	}
	for _, text := range f.lim {
		name, value, _ := strings.Cut(text, "=")
		var l policy.Limits
		if err := l.Set(name, value); err != nil {
			return nil, exit.Usage("", "--limit: %v", err)
		}
		n, unit, _ := l.Get(name)
		add("", syntax.SetLimit("limits", name, unit, n))
	}
	return out, nil
}

// nativeEdits adds the changes that let host programs run, with mounts and PATH that base lacks.
func (f *newProfile) nativeEdits(base policy.Policy, add func(why string, e syntax.Edit)) error {
	for _, p := range f.native {
		info, err := os.Stat(p)
		switch {
		case !filepath.IsAbs(p):
			return exit.Usage("", "--native %s: want an absolute path", p)
		case err != nil:
			return exit.NotFound("", "--native %s: %v", p, exit.Cause(err))
		case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
			return exit.Usage("", "--native %s: it is no program", p)
		}
		add("", syntax.AddItem("tools", "native", p))
	}
	if len(f.native) == 0 {
		return nil
	}
	if !base.Syscalls.Has(policy.GroupNative) {
		add("", syntax.AddItem("syscalls", "groups", policy.GroupNative))
	}
	if _, ok := base.Env.Set.Values["PATH"]; !ok {
		add("", syntax.Edit{Section: "env.set", Key: "PATH",
			Value: syntax.Quote("/usr/local/bin:/usr/bin:/bin")})
		add("", syntax.Edit{Section: "env.set", Key: "HOME", Value: syntax.Quote(learn.Home)})
	}
	for _, m := range append(learn.WideMounts(),
		policy.Mount{Target: learn.Home, Access: policy.Tmpfs}) {
		_, err := os.Stat(m.Source)
		wanted := slices.Contains([]string{"/usr", "/bin", "/lib", "/lib64", "/etc/alternatives",
			"/etc/ld.so.cache"}, m.Target) && err == nil || m.Source == ""
		if wanted && !slices.ContainsFunc(base.Mounts,
			func(have policy.Mount) bool { return have.Target == m.Target }) {
			add("What programs of the host need.", syntax.AddMount(m))
		}
	}
	return nil
}

func (f *newProfile) fetchEdits(base policy.Policy, add func(why string, e syntax.Edit)) error {
	if len(f.hosts) > 0 && base.Fetch.Limits == (policy.FetchLimits{}) {
		p := policy.Policy{Fetch: policy.Fetch{Limits: policy.UsualFetchLimits()}}
		for _, l := range policy.Fields("fetch.limits") {
			if n := l.Amount(p); n != policy.Unlimited {
				add("", syntax.SetLimit(l.Section, l.Name, l.Unit, n))
			}
		}
	}
	for _, text := range f.hosts {
		h, err := hostPort(text)
		if err != nil {
			return exit.Usage("", "--fetch %s: %v", text, err)
		}
		// the last port, which is 443 if none is given
		add("Asked for with --fetch: to read from.",
			syntax.AddRule(policy.Connect{Host: h.Host, Port: h.Ports[len(h.Ports)-1]}))
	}
	return nil
}
