package policy

// FileAudit says what of the files that a run opens and changes is put on record.
type FileAudit uint8

// What is recorded of files, each less than the one before: who is watched less may do more.
const (
	FilesOpens   FileAudit = iota // each file that is opened, executed or written
	FilesChanges                  // each file that is written
	FilesNone                     // none; what a run left in its workspace is recorded all the same
)

var fileAuditWords = []string{"opens", "changes", "none"}

// FileAuditWords are the words of a policy file, the one that records most first.
func FileAuditWords() []string { return append([]string(nil), fileAuditWords...) }

func (a FileAudit) String() string { return word(fileAuditWords, a) }

// MarshalText writes the word of a policy file.
func (a FileAudit) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads the word of a policy file.
func (a *FileAudit) UnmarshalText(text []byte) error { return unword(fileAuditWords, a, text) }

// Audit says what of a run is put on record beyond what always is. A file that says nothing of it asks for no more.
type Audit struct {
	Files FileAudit `json:"files"`
}

// TopAudit asks for nothing.
func TopAudit() Audit { return Audit{Files: FilesNone} }

// Meet records what either of the two does.
func (a Audit) Meet(b Audit) Audit { return Audit{min(a.Normal().Files, b.Normal().Files)} }

// LessEq reports whether a records all that b does.
func (a Audit) LessEq(b Audit) bool { return a.Normal().Files <= b.Normal().Files }

// Normal takes a value that there is not for the one that records most.
func (a Audit) Normal() Audit {
	if a.Files > FilesNone {
		return Audit{}
	}
	return a
}

func (a Audit) String() string { return "files " + a.Normal().Files.String() }
