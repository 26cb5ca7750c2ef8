// Package policytest holds what every part of a policy must satisfy: the laws of a
// lattice, and a table of what the part means to a person. It needs both. The laws alone
// are kept by a lattice that stands upside down, where each layer widens.
package policytest
