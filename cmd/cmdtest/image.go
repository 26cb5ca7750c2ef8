package cmdtest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// An ImageFile is an entry of the layer of an image: a directory if Name ends with a slash, a link if
// Link is set, else a file.
type ImageFile struct {
	Name, Link string
	Text       []byte
	Mode       int64
}

// WriteImage makes a directory in the OCI image layout with an image of one layer, and returns the
// digest of its manifest. config is its configuration, as Env and Cmd.
func WriteImage(t testing.TB, dir string, config map[string]any, files ...ImageFile) string {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Text)), Typeflag: tar.TypeReg}
		switch {
		case f.Link != "":
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, f.Link, 0
		case f.Name[len(f.Name)-1] == '/':
			h.Typeflag, h.Size = tar.TypeDir, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.Text[:h.Size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o755)); err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	write := func(mediaType string, text []byte) object {
		sum := sha256.Sum256(text)
		name := hex.EncodeToString(sum[:])
		if err := os.WriteFile(filepath.Join(dir, "blobs/sha256", name), text, 0o644); err != nil {
			t.Fatal(err)
		}
		return object{"mediaType": "application/vnd.oci.image." + mediaType, "digest": "sha256:" + name,
			"size": len(text)}
	}
	marshal := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	archive := write("layer.v1.tar", layer.Bytes())
	about := write("config.v1+json", marshal(object{"architecture": runtime.GOARCH, "os": "linux",
		"config": config, "rootfs": object{"type": "layers", "diff_ids": []any{archive["digest"]}}}))
	manifest := write("manifest.v1+json", marshal(object{"schemaVersion": 2, "config": about,
		"mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": []object{archive}}))
	index := marshal(object{"schemaVersion": 2, "manifests": []object{manifest}})
	if err := os.WriteFile(filepath.Join(dir, "index.json"), index, 0o644); err != nil {
		t.Fatal(err)
	}
	return manifest["digest"].(string)
}
