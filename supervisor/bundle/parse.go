package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/jail-sandbox/jail/policy/strict"
	"github.com/jail-sandbox/jail/supervisor/jsonbound"
)

// Parse reads a manifest. What it does not know, sees twice, or finds behind the
// end it refuses, so that no other reader can see something else in the same
// bytes (T-611). Errors wrap ErrManifest.
func Parse(text []byte) (Manifest, error) {
	if len(text) > maxManifest {
		return Manifest{}, fmt.Errorf("%w: larger than %d bytes", ErrManifest, maxManifest)
	}
	if err := strictKeys(text); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	var m Manifest
	if err := strict.JSON(text, &m); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if err := m.check(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// keys are all the keys there are, in whatever object. encoding/json takes "NAME"
// for "name", and of two equal keys the last: both are refused here.
var keys = []string{
	"format", "name", "version", "about", "licences", "built_from", "modules", "commands", "limits",
	"spdx", "file", "sha256", "size", "layout", "imports", "module", "memory_bytes", "wall_ms",
	"needs", "hosts", "mounts",
}

const maxDepth = 4

func strictKeys(text []byte) error {
	if err := jsonbound.Check(text, maxValues); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := strictValue(dec, 0); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("something behind the end, at byte %d", dec.InputOffset())
	}
	return nil
}

func strictValue(dec *json.Decoder, depth int) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	if token == nil {
		return fmt.Errorf("null at byte %d", dec.InputOffset())
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return fmt.Errorf("nested too deep at byte %d", dec.InputOffset())
	}
	seen := make(map[string]bool)
	for dec.More() {
		if delim == '{' {
			token, err := dec.Token()
			if err != nil {
				return err
			}
			key, _ := token.(string)
			if seen[key] || !slices.Contains(keys, key) {
				return fmt.Errorf("key %.60q at byte %d: unknown, or there twice", key,
					dec.InputOffset())
			}
			seen[key] = true
		}
		if err := strictValue(dec, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}
