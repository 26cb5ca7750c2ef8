package verify

import "time"

// The jails of these tests have restricted themselves before anybody looks.
func init() { settle = 100 * time.Millisecond }
