// Package gitreader reads repositories that a tool may have written in a process that can do
// nothing else: it has an id of its own and no capability, may open no file, socket or program, and
// gets the files of one repository as read-only descriptors, one by one.
//
//	jaild ──Setup──────────────► git-reader    one socket pair, the reader's descriptor 3
//	jaild ◄──question{Open}───── git-reader    or {List}; any number of times
//	jaild ──answer, a file─────► git-reader
//	jaild ◄──question{File}───── git-reader    content of the objects of Taken, in parts
//	jaild ◄──question{Done}───── git-reader    or {Taken}, {Refused}
//
// The reader ends when jaild closes its socket. What the reader says is bounded and checked: it has
// read what a tool wrote.
package gitreader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/confine"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/gitrepo"
)

// Arg is the first argument with which the daemon's executable runs as a reader.
const Arg = "git-reader"

const (
	// readerControl is the number of the reader's descriptor for its socket to the daemon.
	readerControl = 3
	// maxTime bounds the run of a reader. The reader itself gives up after ownTime.
	maxTime = 20 * time.Second
	ownTime = 15 * time.Second
	// maxQuestion bounds a message from the reader, in bytes.
	maxQuestion = 12 << 20
)

// setup is the first message to the reader.
type setup struct {
	UID    uint32 `json:"uid"`
	Filter []byte `json:"filter"`
	// Take is the branch to take. If it is nil, the reader makes a report.
	Take *gitrepo.Want `json:"take,omitempty"`
}

// question is a message from the reader: a request for a file, or a result. It has exactly one of
// the fields, File with More counting as one.
type question struct {
	Open   *place          `json:"open,omitempty"`
	List   *place          `json:"list,omitempty"`
	Done   *gitrepo.Report `json:"done,omitempty"`
	Failed string          `json:"failed,omitempty"`
	// File is the next part of the file of an object. More: another part of it follows.
	File  []byte         `json:"file,omitempty"`
	More  bool           `json:"more,omitempty"`
	Taken *gitrepo.Taken `json:"taken,omitempty"`
	// Refused says why a branch is not taken.
	Refused string `json:"refused,omitempty"`
}

type place struct {
	Side gitrepo.Side `json:"side"`
	Path []byte       `json:"path"`
}

// answer is the daemon's answer to Open or List. For Open it carries the descriptor of the file.
type answer struct {
	Missing   bool     `json:"missing,omitempty"`
	Directory bool     `json:"directory,omitempty"`
	Irregular bool     `json:"irregular,omitempty"`
	Failed    string   `json:"failed,omitempty"`
	Size      int64    `json:"size,omitempty"`
	Names     [][]byte `json:"names,omitempty"`
}

// Main is the main function of a reader process. It returns the exit code.
func Main(stderr io.Writer) int {
	conn, err := control.Inherit(readerControl)
	if err != nil {
		fmt.Fprintln(stderr, "git reader: it is started by jaild:", err)
		return 125
	}
	if err := serve(conn); err != nil && !errors.Is(err, io.EOF) {
		// The daemon may be gone.
		_ = conn.Send(question{Failed: err.Error()})
		return 125
	}
	return 0
}

func serve(conn *control.Conn) error {
	var s setup
	files, err := conn.Receive(&s)
	if err != nil {
		return err
	}
	control.CloseAll(files)
	if err := confine.Reader(s.UID, s.Filter); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), ownTime)
	defer cancel()
	if s.Take != nil {
		return take(ctx, conn, *s.Take)
	}
	report, err := gitrepo.Explain(ctx, asked{conn})
	if err != nil {
		return err
	}
	return conn.Send(question{Done: &report})
}

// maxPart bounds one part of a file, in bytes.
const maxPart = 4 << 20

func take(ctx context.Context, conn *control.Conn, want gitrepo.Want) error {
	taken, err := gitrepo.Take(ctx, asked{conn}, want)
	refusal := gitrepo.Refusal("")
	if errors.As(err, &refusal) {
		return conn.Send(question{Refused: string(refusal)})
	}
	if err != nil {
		return err
	}
	for _, o := range taken.Objects {
		for rest := o.File; len(rest) > 0; {
			part := rest[:min(len(rest), maxPart)]
			rest = rest[len(part):]
			if err := conn.Send(question{File: part, More: len(rest) > 0}); err != nil {
				return err
			}
		}
	}
	return conn.Send(question{Taken: &taken})
}

// asked is a gitrepo.Files that asks the daemon to open the files.
type asked struct{ conn *control.Conn }

func (a asked) Open(side gitrepo.Side, path string) (*os.File, int64, error) {
	said, f, err := a.ask(question{Open: &place{side, []byte(path)}})
	if err == nil && f == nil {
		err = errors.New("the daemon sent no file")
	}
	return f, said.Size, err
}

func (a asked) List(side gitrepo.Side, path string) ([]string, error) {
	said, f, err := a.ask(question{List: &place{side, []byte(path)}})
	if f != nil {
		f.Close()
	}
	var names []string
	for _, name := range said.Names {
		names = append(names, string(name))
	}
	return names, err
}

func (a asked) ask(q question) (said answer, f *os.File, err error) {
	if err := a.conn.Send(q); err != nil {
		return said, nil, err
	}
	files, err := a.conn.Receive(&said)
	if err != nil {
		return said, nil, err
	}
	if len(files) > 0 {
		f = files[0]
	}
	switch {
	case said.Missing:
		err = fs.ErrNotExist
	case said.Directory:
		err = gitrepo.ErrDirectory
	case said.Irregular:
		err = gitrepo.ErrIrregular
	case said.Failed != "":
		err = errors.New(said.Failed)
	}
	return said, f, err
}

// Spec says how to start a reader.
type Spec struct {
	// Exe is the path of the daemon's executable.
	Exe string
	UID uint32
	// Filter is the compiled seccomp filter.
	Filter []byte
}

// Explain starts a reader for one repository and returns its report.
func (s Spec) Explain(ctx context.Context, files gitrepo.Files) (gitrepo.Report, error) {
	last, err := s.run(ctx, files, nil)
	if err == nil && last.Done == nil {
		err = errors.New("git reader: it gave no report")
	}
	if err != nil {
		return gitrepo.Report{}, err
	}
	return last.Done.Bounded(), nil
}

// Take starts a reader that finds the objects for a commit of a branch; see gitrepo.Take. An error
// that is a gitrepo.Refusal says why the branch cannot be taken.
func (s Spec) Take(ctx context.Context, files gitrepo.Files, want gitrepo.Want) (gitrepo.Taken,
	error) {
	last, err := s.run(ctx, files, &want)
	if err == nil && last.Taken == nil {
		err = errors.New("git reader: it took nothing")
	}
	if err != nil {
		return gitrepo.Taken{}, err
	}
	return *last.Taken, nil
}

// run starts a reader, answers its questions and returns its last message.
func (s Spec) run(ctx context.Context, files gitrepo.Files, want *gitrepo.Want) (last question,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	conn, theirs, err := control.Pair("git reader")
	if err != nil {
		return last, err
	}
	defer conn.Close()
	cmd := exec.CommandContext(ctx, s.Exe, Arg)
	cmd.Env = []string{"GOTRACEBACK=none", "GOMAXPROCS=1", "GOMEMLIMIT=256MiB",
		"GODEBUG=containermaxprocs=0,updatemaxprocs=0"}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return last, err
	}
	last, err = (&parts{}).listen(conn, files, setup{s.UID, s.Filter, want})
	// A reader that has sent its result is killed.
	cancel()
	if how := cmd.Wait(); err != nil && errors.Is(err, io.EOF) {
		err = fmt.Errorf("it ended: %w", how)
	}
	if refusal := gitrepo.Refusal(""); err != nil && !errors.As(err, &refusal) {
		err = fmt.Errorf("git reader: %w", err)
	}
	return last, err
}

// parts are the object files that a reader has sent. If open, the last one is not complete.
type parts struct {
	all   [][]byte
	open  bool
	bytes int
}

// listen sends the setup and answers a reader's questions until its result, which it returns.
func (s *parts) listen(conn *control.Conn, files gitrepo.Files, first setup) (question, error) {
	if err := conn.Send(first); err != nil {
		return question{}, err
	}
	for {
		var q question
		sent, err := conn.ReceiveMost(&q, maxQuestion)
		control.CloseAll(sent)
		switch {
		case err != nil:
			return q, err
		case q.Open != nil && !q.Open.names(), q.List != nil && !q.List.names():
			err = errPlace
		case q.Open != nil:
			err = answerOpen(conn, files, *q.Open)
		case q.List != nil:
			err = answerList(conn, files, *q.List)
		case q.File != nil:
			err = s.file(q)
		case q.Done != nil:
			return q, nil
		case q.Taken != nil:
			return q, s.take(q.Taken)
		case q.Refused != "":
			return q, gitrepo.CleanRefusal(q.Refused)
		default:
			return q, fmt.Errorf("%.300q", q.Failed)
		}
		if err != nil {
			return q, err
		}
	}
}

var errTaken = errors.New("the reader took what is no branch")

// file adds a part of an object file. It returns errTaken beyond the bounds of gitrepo.
func (s *parts) file(q question) error {
	if s.bytes += len(q.File); s.bytes > gitrepo.MaxTakenBytes || len(s.all) > gitrepo.MaxTaken {
		return errTaken
	}
	if s.open {
		last := len(s.all) - 1
		s.all[last] = append(s.all[last], q.File...)
	} else {
		s.all = append(s.all, q.File)
	}
	s.open = q.More
	return nil
}

// take sets File of the packed objects in taken to the files that the reader has sent, in order.
func (s *parts) take(taken *gitrepo.Taken) error {
	if !taken.Valid() || len(taken.Objects) > gitrepo.MaxTaken || s.open {
		return errTaken
	}
	for i := range taken.Objects {
		if taken.Objects[i].SHA256 != "" {
			continue
		}
		if len(s.all) == 0 {
			return errTaken
		}
		taken.Objects[i].File, s.all = s.all[0], s.all[1:]
	}
	if len(s.all) > 0 {
		return errTaken
	}
	return nil
}

// names reports whether a reader may ask for p: a clean relative path inside the repository.
func (p place) names() bool {
	name := string(p.Path)
	return (p.Side == gitrepo.Real || p.Side == gitrepo.Shadow) && name != "" && name != "." &&
		path.Clean(name) == name && !strings.HasPrefix(name, "/") && name != ".." &&
		!strings.HasPrefix(name, "../") && !strings.Contains(name, "\x00") && len(name) < 4096
}

var errPlace = errors.New("the reader named a file outside of the repository")

func answerOpen(conn *control.Conn, files gitrepo.Files, p place) error {
	f, size, err := files.Open(p.Side, string(p.Path))
	if err != nil {
		return conn.Send(failure(err))
	}
	defer f.Close()
	return conn.Send(answer{Size: size}, f)
}

// maxNames bounds the bytes of the names in one directory.
const maxNames = 8 << 20

func answerList(conn *control.Conn, files gitrepo.Files, p place) error {
	names, err := files.List(p.Side, string(p.Path))
	if err != nil {
		return conn.Send(failure(err))
	}
	var a answer
	total := 0
	for _, name := range names {
		total += len(name) + 8
		a.Names = append(a.Names, []byte(name))
	}
	if total > maxNames {
		a = answer{Failed: "a directory has too many names"}
	}
	return conn.Send(a)
}

func failure(err error) answer {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return answer{Missing: true}
	case errors.Is(err, gitrepo.ErrDirectory):
		return answer{Directory: true}
	case errors.Is(err, gitrepo.ErrIrregular):
		return answer{Irregular: true}
	}
	return answer{Failed: err.Error()}
}
