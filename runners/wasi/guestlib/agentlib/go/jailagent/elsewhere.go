//go:build !wasip1

// Package jailagent has the bindings of an agent in a jail. It is for GOOS=wasip1 alone.
package jailagent
