// Package trust decides whose bundles may be installed. It exists so that the
// decision is made from two small texts that people can read, a publisher's key
// ring and a statement about one bundle, both signed notes (C2SP signed-note):
//
//	jail key ring
//	publisher acme
//	version 3
//	expires 2027-06-01T00:00:00Z
//	registry ghcr.io/acme/bundles
//	roots 2
//	root acme-root-a+5e4f8c11+Ae…
//	root acme-root-b+0b1d3c55+AQ…
//	root acme-root-c+99a0d1e2+AX…
//	keys 1
//	key acme-2026+31c44aa0+AR…
//	revoked-key acme-2025+77aa0c4e
//	revoked sha256:6f1e…
//
//	— acme-root-a Xk+MERb5…
//	— acme-root-b CxPDVWn2…
//
// and
//
//	jail bundle
//	name words
//	version 1.2.0
//	manifest sha256:0d51… 2310
//	signed 2026-06-01T00:00:00Z
//	expires 2027-06-01T00:00:00Z
//
//	— acme-2026 McRKoDr1…
//
// A ring is replaced only by one with a higher version that enough roots of both
// sign, as The Update Framework has it: https://theupdateframework.github.io/.
package trust
