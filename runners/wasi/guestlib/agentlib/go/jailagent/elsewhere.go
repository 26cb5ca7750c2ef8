//go:build !wasip1

// Package jailagent has the bindings of an agent in a jail. It works only with GOOS=wasip1.
package jailagent
