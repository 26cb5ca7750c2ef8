//go:build !wasip1

// Package jailhttp makes net/http work inside a jail; see the file for wasip1. Here it does
// nothing.
package jailhttp
