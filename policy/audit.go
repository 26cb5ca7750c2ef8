package policy

// FileAudit is which uses of files a run records.
type FileAudit = word[fileAudits]

type fileAudits struct{}

func (fileAudits) words() []string { return []string{"opens", "changes", "none"} }

// Values of FileAudit, each recording less than the one before: a run that is recorded less may do
// more.
const (
	// Each file that is opened, executed or written.
	FilesOpens FileAudit = iota
	// Each file that is written.
	FilesChanges
	// FilesNone records none; the change set of the workspace is recorded anyway.
	FilesNone
)

// Audit is what a run records in addition to the standard records. The default adds nothing.
type Audit struct {
	Files FileAudit `json:"files"`
}

// TopAudit returns the audit that adds nothing.
func TopAudit() Audit { return Audit{Files: FilesNone} }

// Meet records what either of the two records.
func (a Audit) Meet(b Audit) Audit { return Audit{min(a.Normal().Files, b.Normal().Files)} }

// LessEq reports whether a records all that b does.
func (a Audit) LessEq(b Audit) bool { return a.Normal().Files <= b.Normal().Files }

// Normal returns the value that records most for an invalid one.
func (a Audit) Normal() Audit { return Audit{a.Files.orStrictest()} }

func (a Audit) String() string { return "files " + a.Normal().Files.String() }
