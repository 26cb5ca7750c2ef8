// Package victim is what tests and the probe, the program that attacks a jail from its inside, say
// to each other. The probe stands in jail-init's place and restricts itself as that does, so that
// an attack meets the whole stack and no engine around it.
package victim

import "fmt"

// A Call is one system call of an attack, or, where Name begins with "=", something that takes more
// than one; see the probe.
type Call struct {
	Name string `json:"name,omitempty"`
	// Where there is no name.
	Nr   int   `json:"nr,omitempty"`
	Args []Arg `json:"args,omitempty"`
}

// An Arg is an argument of a system call; one field is set.
type Arg struct {
	Int uint64 `json:"int,omitempty"`
	// A pointer to it, with a NUL.
	Text *string `json:"text,omitempty"`
	// A pointer to so many bytes of zero.
	Buf   int      `json:"buf,omitempty"`
	Bytes []byte   `json:"bytes,omitempty"` // a pointer to them
	List  []string `json:"list,omitempty"`  // as execve(2) takes it
	// 1 and on: the result of the first, second, … call of the same attack
	Ref int `json:"ref,omitempty"`
}

// Int is a number.
func Int(n int64) Arg { return Arg{Int: uint64(n)} }

// Text is a pointer to a C string.
func Text(s string) Arg { return Arg{Text: &s} }

// Buf is a pointer to n bytes, which come back in the result.
func Buf(n int) Arg { return Arg{Buf: n} }

// Bytes is a pointer to b.
func Bytes(b ...byte) Arg { return Arg{Bytes: b} }

// Ref is the result of the nth call, from 1.
func Ref(n int) Arg { return Arg{Ref: n} }

// Do is a call by name.
func Do(name string, args ...Arg) Call { return Call{Name: name, Args: args} }

// A Result is how one call went.
type Result struct {
	Ret int64 `json:"ret"`
	// Its name; empty for success.
	Errno string `json:"errno,omitempty"`
	// What is in the last Buf, or what was read.
	Data []byte `json:"data,omitempty"`
}

func (r Result) String() string {
	if r.Errno != "" {
		return r.Errno
	}
	return fmt.Sprintf("ok (%d)", r.Ret)
}
