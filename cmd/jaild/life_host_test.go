package main_test

import "github.com/jail-sandbox/jail/cmd/cmdtest"

func shimPID(r *cmdtest.LiveRun) int {
	r.H.T.Helper()
	return cmdtest.ParentOf(r.H.T, r.InitPID())
}
