// Package tools holds what the tool bundles that jail ships are built from, and
// the table that compares them with the tools that Debian has under the same
// names. It has no code of its own: build.sh is where to start reading.
package tools
