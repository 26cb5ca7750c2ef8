// Package syntax reads and writes policies as TOML, strictly, so that a policy means what its
// author meant or is refused.
//
// Ceilings, profiles and requests have the same keys. They differ in what a missing key means: in a
// ceiling or request it narrows nothing, in a profile it grants nothing. A profile must set all its
// limits, itself or by its includes.
//
// A lenient reader would accept keys in another case, unknown keys, numbers in strings, and sizes
// without a unit. Each of these makes a policy mean less than its author believes. So each is an
// error, with file, line and column, and all errors of a file are reported at once.
package syntax
