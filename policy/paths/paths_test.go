package paths

import "testing"

func TestRel(t *testing.T) {
	for _, tt := range []struct {
		dir, path, rel string
		ok             bool
	}{
		{"/a", "/a", "", true},
		{"/a", "/a/b/c", "b/c", true},
		{"/a", "/ab", "", false},
		{"/a/b", "/a", "", false},
		{"/", "/a", "a", true},
		{"/", "/", "", true},
		{"", "/a", "a", true},
		{"", "", "", true},
		{"a", "a/b", "b", true},
		{"a", "ab", "", false},
	} {
		rel, ok := Rel(tt.dir, tt.path)
		if ok != tt.ok || ok && rel != tt.rel {
			t.Errorf("Rel(%q, %q) = %q, %v, want %q, %v", tt.dir, tt.path, rel, ok, tt.rel, tt.ok)
		}
		if Within(tt.dir, tt.path) != tt.ok {
			t.Errorf("Within(%q, %q) = %v, want %v", tt.dir, tt.path, !tt.ok, tt.ok)
		}
		if ok && tt.dir != "" && Join(tt.dir, rel) != tt.path {
			t.Errorf("Join(%q, %q) = %q, want %q", tt.dir, rel, Join(tt.dir, rel), tt.path)
		}
	}
}
