// Package supervisor holds no code. The packages below it decide who may ask, what starts, and what
// is watched and recorded:
//
//	service             wires the parts of a daemon together
//	api client console  the faces: what clients, terminals and browsers see
//	run                 the steps of a run
//	session             sessions and their invocations
//	live                the runs that are alive, as callers may see and end them
//	prepare             a request becomes a plan
//	prewarm             jails that are made ahead
//	admission           when a run may start
//	runproxy fetch      the fetch proxy of a run
//	runshadow shadows   the shadow of a run, and the shadows that are kept
//	approvals           the actions that wait for somebody
//	audit runlog        the log, and the records of one run
//
// They import each other in one direction, which TestSupervisorOrder in cmd/ holds.
package supervisor
