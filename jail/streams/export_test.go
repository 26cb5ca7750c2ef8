package streams

// MaxStreams is how many streams a jail has at most.
const MaxStreams = maxStreams

// ErrTooMany is returned for a jail that opens more than twice as many.
var ErrTooMany = errTooMany
