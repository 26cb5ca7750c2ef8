// Package oci carries bundles through OCI registries and directories in the OCI image layout. It
// exists so that stock tools (oras, crane, skopeo) can copy, mirror and keep them. Only the client
// uses it, so that the daemon needs no network; the daemon verifies what the client brings again.
//
// A bundle is an image index of two manifests:
//
//	index      artifactType application/vnd.jail.bundle.v1
//	├─ modules  the CNCF Wasm layout: config application/vnd.wasm.config.v0+json, a layer application/wasm for each
//	│           https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/
//	└─ about    artifactType application/vnd.jail.bundle.about.v1: bundle.json, bundle.sig, the licences
//
// What counts is bundle.json, which bundle.sig signs: files are fetched by the digests in it. The
// OCI manifests have to agree with it and add nothing.
package oci
