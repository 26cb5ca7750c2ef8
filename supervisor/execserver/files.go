package execserver

import (
	"bytes"
	"cmp"
	"context"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// Bounds of files.
const (
	// maxRead bounds the size of a file that is read, in bytes. The policy's limit output may be
	// lower.
	maxRead = toolsession.MaxWritten
	// maxList bounds a list of names, in bytes.
	maxList = 4 << 20
	// maxOpen bounds the number of a client's open files, and maxOpenBytes their total size.
	maxOpen      = 64
	maxOpenBytes = 64 << 20
	// maxHandle bounds the name of an open file, in bytes.
	maxHandle = 32
)

// files handles the requests fs/* of one connection, one after the other. Each runs a tool in the
// session, so that a client has the same access to files as its processes.
type files struct {
	session *toolsession.Session
	// open holds the contents of open files by handle, and bytes their total size.
	open  map[string][]byte
	bytes int
}

// handler returns the handler for a method, nil if it is unknown.
func (f *files) handler(method string) answerer {
	return map[string]answerer{
		"fs/readFile":        placed(f, f.readFile),
		"fs/writeFile":       placed(f, f.writeFile),
		"fs/open":            placed(f, f.openFile),
		"fs/readBlock":       reading(f.readBlock),
		"fs/close":           reading(f.closeFile),
		"fs/getMetadata":     placed(f, f.metadata),
		"fs/canonicalize":    placed(f, f.canonicalize),
		"fs/readDirectory":   placed(f, f.readDirectory),
		"fs/walk":            placed(f, f.walk),
		"fs/createDirectory": placed(f, f.createDirectory),
		"fs/remove":          placed(f, f.remove),
		"fs/copy":            reading(f.copy),
	}[method]
}

// A place is the field of most requests with the URI of a file.
type place struct {
	Path string `json:"path"`
}

func (p place) uri() string { return p.Path }

// placed is like reading, for a request with a place. It passes the path in the jail as at.
func placed[T interface{ uri() string }](f *files,
	answer func(ctx context.Context, in T, at string) (any, error)) answerer {
	return reading(func(ctx context.Context, in T) (any, error) {
		name, err := pathOf(in.uri())
		if err != nil {
			return nil, err
		}
		return answer(ctx, in, f.session.Within(name))
	})
}

// run runs a program and keeps most bytes of its output. An exit code other than 0 is an error.
func (f *files) run(ctx context.Context, most int, program ...string) (toolsession.Outcome, error) {
	o, err := f.session.Run(ctx, toolsession.Call{Tool: program[0], Args: program[1:], Most: most,
		Limits: toolsession.FileLimits})
	if err == nil {
		err = failed(o)
	}
	return o, err
}

// failed returns the error for a program whose exit code is not 0, nil for 0. It finds the code of
// the error in the message, which has the text of strerror(3).
func failed(o toolsession.Outcome) error {
	why := o.Why()
	switch {
	case o.ExitCode == 0:
		return nil
	case strings.Contains(why, "No such file or directory"):
		return fail(codeNotFound, "%s", why)
	case strings.Contains(why, "Permission denied"), strings.Contains(why, "Is a directory"),
		strings.Contains(why, "Read-only file system"), strings.Contains(why, "into itself"):
		return invalid("%s", why)
	}
	return internal("%s", why)
}

// content returns the whole content of a file. name is for errors, at is the path in the jail.
func (f *files) content(ctx context.Context, name, at string) ([]byte, error) {
	o, err := f.run(ctx, maxRead, "cat", "--", at)
	if o.Out.Cut || o.Truncated {
		return nil, internal("%s is larger than %d bytes or than the limit output", name, maxRead)
	}
	return o.Out.Bytes(), err
}

type fileContent struct {
	Data []byte `json:"dataBase64"`
}

func (f *files) readFile(ctx context.Context, in place, at string) (any, error) {
	text, err := f.content(ctx, in.Path, at)
	if err != nil {
		return nil, err
	}
	return fileContent{append([]byte{}, text...)}, nil
}

type writeFileParams struct {
	place
	fileContent
}

func (f *files) writeFile(ctx context.Context, in writeFileParams, at string) (any, error) {
	if len(in.Data) > toolsession.MaxWritten {
		return nil, invalid("%s: %d bytes; at most %d can be written at once", in.Path, len(in.Data),
			toolsession.MaxWritten)
	}
	o, err := f.session.Write(ctx, at, in.Data)
	if err == nil {
		err = failed(o)
	}
	return struct{}{}, err
}

// A handle is the field with the name of an open file. The client chooses the name.
type handle struct {
	HandleID string `json:"handleId"`
}

type openFileParams struct {
	place
	handle
}

// openFile stores the content of the file under the handle. Later reads return this content.
func (f *files) openFile(ctx context.Context, in openFileParams, at string) (any, error) {
	switch {
	case len(in.HandleID) > maxHandle:
		return nil, invalid("a handle has %d bytes, at most %d", len(in.HandleID), maxHandle)
	case f.open[in.HandleID] != nil:
		return nil, invalid("the handle %q is in use", in.HandleID)
	case len(f.open) >= maxOpen:
		return nil, internal("%d files are open, the most that may be", len(f.open))
	}
	text, err := f.content(ctx, in.Path, at)
	if err != nil {
		return nil, err
	}
	if f.bytes+len(text) > maxOpenBytes {
		return nil, internal("open files may hold %d bytes together", maxOpenBytes)
	}
	if f.open == nil {
		f.open = map[string][]byte{}
	}
	f.open[in.HandleID] = append([]byte{}, text...)
	f.bytes += len(text)
	return in.handle, nil
}

type block struct {
	Chunk []byte `json:"chunk"`
	EOF   bool   `json:"eof"`
}

type readBlockParams struct {
	handle
	Offset uint64 `json:"offset"`
	Len    uint64 `json:"len"`
}

func (f *files) readBlock(_ context.Context, in readBlockParams) (any, error) {
	text, ok := f.open[in.HandleID]
	if !ok {
		return nil, fail(codeNotFound, "unknown file handle %.64q", in.HandleID)
	}
	from := min(in.Offset, uint64(len(text)))
	to := from + min(in.Len, uint64(len(text))-from)
	return block{text[from:to], to == uint64(len(text))}, nil
}

func (f *files) closeFile(_ context.Context, in handle) (any, error) {
	f.bytes -= len(f.open[in.HandleID])
	delete(f.open, in.HandleID)
	return struct{}{}, nil
}

type metadata struct {
	IsDirectory bool   `json:"isDirectory"`
	IsFile      bool   `json:"isFile"`
	IsSymlink   bool   `json:"isSymlink"`
	Size        uint64 `json:"size"`
	// CreatedAtMS is 0: overlayfs does not know it.
	CreatedAtMS  int64 `json:"createdAtMs"`
	ModifiedAtMS int64 `json:"modifiedAtMs"`
}

// metadata returns the metadata of a file with links followed, and whether the path is a symlink.
func (f *files) metadata(ctx context.Context, in place, at string) (any, error) {
	o, err := f.run(ctx, maxList, "stat", "-L", "-c", "%f %s %Y", "--", at)
	if err != nil {
		return nil, err
	}
	l, err := f.run(ctx, maxList, "stat", "-c", "%f", "--", at)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(o.Out.String())
	link, linkErr := strconv.ParseUint(strings.TrimSpace(l.Out.String()), 16, 32)
	if len(words) != 3 || linkErr != nil {
		return nil, internal("stat of %s says %q", in.Path, o.Out.String())
	}
	mode, modeErr := strconv.ParseUint(words[0], 16, 32)
	size, sizeErr := strconv.ParseUint(words[1], 10, 64)
	seconds, timeErr := strconv.ParseInt(words[2], 10, 64)
	if err := cmp.Or(modeErr, sizeErr, timeErr); err != nil {
		return nil, internal("stat of %s: %v", in.Path, err)
	}
	return metadata{IsDirectory: mode&syscall.S_IFMT == syscall.S_IFDIR,
		IsFile:    mode&syscall.S_IFMT == syscall.S_IFREG,
		IsSymlink: link&syscall.S_IFMT == syscall.S_IFLNK, Size: size, ModifiedAtMS: seconds * 1000}, nil
}

func (f *files) canonicalize(ctx context.Context, in place, at string) (any, error) {
	o, err := f.run(ctx, maxList, "realpath", "-e", "--", at)
	if err != nil {
		return nil, err
	}
	return place{uriOf(f.seen(strings.TrimSuffix(o.Out.String(), "\n")))}, nil
}

// A found is an entry below a directory.
type found struct {
	// name is relative to the directory.
	name string
	// dir and file say whether it is a directory or a regular file. Other files are neither.
	dir, file bool
}

// find lists the entries below a directory, at most depth levels deep. If follow is false, links
// are neither files nor directories. more is true if the list is incomplete.
func (f *files) find(ctx context.Context, at string, follow bool, depth int) (all []found, more bool,
	err error) {
	// Names may hold any byte but NUL, so the number of repetitions encodes the type: two for a
	// directory, three for a file.
	args := []string{at, "-mindepth", "1", "-maxdepth", strconv.Itoa(depth), "(", "-type", "d",
		"-print0", "-print0", ")", "-o", "(", "-type", "f", "-print0", "-print0", "-print0", ")", "-o",
		"-print0"}
	if follow {
		args = slices.Insert(args, 0, "-L")
	}
	o, err := f.session.Run(ctx, toolsession.Call{Tool: "find", Most: maxList, Limits: toolsession.FileLimits,
		Args: args})
	if err != nil {
		return nil, false, err
	}
	if o.ExitCode != 0 && o.Out.Len() == 0 {
		return nil, false, failed(o)
	}
	text := o.Out.Bytes()
	last := ""
	for name := range bytes.SplitSeq(text[:bytes.LastIndexByte(text, 0)+1], []byte{0}) {
		switch n := string(name); {
		case n == "":
		case n != last:
			last = n
			all = append(all, found{name: strings.TrimPrefix(strings.TrimPrefix(n, at), "/")})
		case all[len(all)-1].dir:
			all[len(all)-1].dir, all[len(all)-1].file = false, true
		default:
			all[len(all)-1].dir = true
		}
	}
	return all, o.Out.Cut || o.Truncated, nil
}

type directoryEntry struct {
	FileName    string `json:"fileName"`
	IsDirectory bool   `json:"isDirectory"`
	IsFile      bool   `json:"isFile"`
}

func (f *files) readDirectory(ctx context.Context, in place, at string) (any, error) {
	// find has no error for a file, so let ls fail.
	if _, err := f.run(ctx, maxList, "ls", "-d", "--", path.Join(at, ".")+"/"); err != nil {
		return nil, err
	}
	all, more, err := f.find(ctx, at, true, 1)
	if err == nil && more {
		err = internal("the names in %s have more than %d bytes", in.Path, maxList)
	}
	if err != nil {
		return nil, err
	}
	entries := []directoryEntry{}
	for _, e := range all {
		entries = append(entries, directoryEntry{e.name, e.dir, e.file})
	}
	return map[string]any{"entries": entries}, nil
}

type walkParams struct {
	place
	Options struct {
		MaxDepth       *int `json:"maxDepth"`
		MaxDirectories *int `json:"maxDirectories"`
		MaxEntries     *int `json:"maxEntries"`
		Follow         bool `json:"followDirectorySymlinks"`
	} `json:"options"`
}

type walked struct {
	Entries   []walkedEntry `json:"entries"`
	Errors    []struct{}    `json:"errors"`
	Truncated bool          `json:"truncated"`
}

type walkedEntry struct {
	place
	Kind string `json:"kind"`
}

// maxDepth bounds the depth of walk.
const maxDepth = 64

// walk lists files and directories recursively, level by level.
func (f *files) walk(ctx context.Context, in walkParams, at string) (any, error) {
	o := in.Options
	for _, n := range []*int{o.MaxDepth, o.MaxDirectories, o.MaxEntries} {
		if n == nil || *n < 0 {
			return nil, badParams("options: maxDepth, maxDirectories and maxEntries are numbers from 0 on")
		}
	}
	// Directories at maxDepth are read, so their entries are one level deeper.
	all, more, err := f.find(ctx, at, o.Follow, min(*o.MaxDepth, maxDepth)+1)
	if err != nil {
		return nil, err
	}
	out := walked{Entries: []walkedEntry{}, Errors: []struct{}{}, Truncated: more}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(strings.Count(a.name, "/")-strings.Count(b.name, "/"),
			slices.Compare(strings.Split(a.name, "/"), strings.Split(b.name, "/")))
	})
	root, err := pathOf(in.Path)
	if err != nil {
		return nil, err
	}
	dirs := 1
	for _, e := range all {
		kind := "file"
		switch {
		case !e.dir && !e.file:
			continue
		case e.dir:
			kind, dirs = "directory", dirs+1
		}
		if len(out.Entries) >= *o.MaxEntries || dirs > *o.MaxDirectories {
			out.Truncated = true
			break
		}
		out.Entries = append(out.Entries, walkedEntry{place{uriOf(filepath.Join(root, e.name))}, kind})
	}
	return out, nil
}

type changeParams struct {
	place
	Recursive *bool `json:"recursive"`
	Force     *bool `json:"force"`
}

// or returns the value of a flag whose default is true.
func or(flag *bool) bool { return flag == nil || *flag }

func (f *files) createDirectory(ctx context.Context, in changeParams, at string) (any, error) {
	args := []string{"mkdir", "--", at}
	if or(in.Recursive) {
		args = []string{"mkdir", "-p", "--", at}
	}
	_, err := f.run(ctx, maxList, args...)
	return struct{}{}, err
}

func (f *files) remove(ctx context.Context, in changeParams, at string) (any, error) {
	args := []string{"rm"}
	if or(in.Recursive) {
		args = append(args, "-r")
	}
	if or(in.Force) {
		args = append(args, "-f")
	}
	o, err := f.run(ctx, maxList, append(args, "--", at)...)
	if err != nil && !or(in.Recursive) && strings.Contains(o.Why(), "directory") {
		// An empty directory may be removed without recursive.
		if _, dirErr := f.run(ctx, maxList, "rmdir", "--", at); dirErr == nil ||
			!strings.Contains(dirErr.Error(), "Not a directory") {
			err = dirErr
		}
	}
	return struct{}{}, err
}

type copyParams struct {
	Source      string `json:"sourcePath"`
	Destination string `json:"destinationPath"`
	Recursive   bool   `json:"recursive"`
}

func (f *files) copy(ctx context.Context, in copyParams) (any, error) {
	from, err := pathOf(in.Source)
	if err != nil {
		return nil, err
	}
	to, err := pathOf(in.Destination)
	if err != nil {
		return nil, err
	}
	if in.Recursive && (to == from || strings.HasPrefix(to, from+"/")) {
		return nil, invalid("a directory cannot be copied into itself")
	}
	flags := "-PT"
	if in.Recursive {
		flags = "-RPT"
	}
	_, err = f.run(ctx, maxList, "cp", flags, "--", f.session.Within(from), f.session.Within(to))
	return struct{}{}, err
}

// pathOf returns the path of a file URI (RFC 8089). URIs of other hosts and schemes are errors.
func pathOf(uri string) (string, error) {
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return "", badParams("invalid URI %.200q", uri)
	case u.Scheme != "file" || !strings.HasPrefix(u.Path, "/"):
		return "", badParams("%.200q is no URI of a file, such as file:///tmp/f", uri)
	case u.Host != "":
		return "", invalid("%.200q is a file of another host", uri)
	case strings.ContainsRune(u.Path, 0):
		return "", badParams("%.200q has a NUL byte", uri)
	}
	return filepath.Clean(u.Path), nil
}

func uriOf(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// jailed is the path of the workspace in a jail, unless the policy mounts it at its own path.
const jailed = "/workspace"

// seen converts a path in the jail to the client's path, which is on the host.
func (f *files) seen(path string) string {
	if below, ok := strings.CutPrefix(path, jailed); ok && (below == "" || below[0] == '/') {
		return f.session.Root() + below
	}
	return path
}
