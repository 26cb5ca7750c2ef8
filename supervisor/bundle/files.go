package bundle

// A File is one that a manifest names.
type File struct {
	Name string
	// Hexadecimal; empty where the manifest does not pin it.
	SHA256 string
	Size   int64 // bytes
	Module bool
}

// Files are all files of the bundle but the manifest and its signature, in the order in which they
// are carried: modules, then licences.
func (m Manifest) Files() []File {
	var files []File
	for _, mod := range m.Modules {
		files = append(files, File{mod.File, mod.SHA256, mod.Size, true})
	}
	seen := map[string]bool{}
	for _, l := range m.Licences {
		// Two licences may share a text.
		if !seen[l.File] {
			files = append(files, File{l.File, l.SHA256, l.Size, false})
		}
		seen[l.File] = true
	}
	return files
}

// Portable returns why a bundle cannot be carried to another host, or nil: each of its files has to
// be pinned by the manifest, and all together have to be small enough to be taken.
func (m Manifest) Portable() error { return portable(m) }
