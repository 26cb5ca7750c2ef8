// Package syntax reads and writes policies as TOML, strictly, so that a policy means
// what its author meant or is refused.
//
// There is one shape for a ceiling, a profile and a request. What differs is a key that
// is left out: in a ceiling and in a request it narrows nothing, in a profile it grants
// nothing. A profile must say all its limits, itself or by what it includes.
//
// A lenient reader would accept more: keys in another case, keys that it does not know,
// numbers in strings, sizes without a unit. Each of these is how a policy comes to mean
// less than its author believes, so each is an error, with file, line and column, and
// all errors of a file are reported at once.
package syntax
