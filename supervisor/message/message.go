// Package message has what clients and the daemon say to each other: what is asked for, and what
// comes back. It holds values and no work; their JSON form is that of the API.
package message
