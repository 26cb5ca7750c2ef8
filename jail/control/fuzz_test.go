package control_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
)

// FuzzMessages reads every kind of message in both directions: what is taken says the same when it
// is sent on, and nothing panics.
func FuzzMessages(f *testing.F) {
	for _, message := range []any{
		control.Order{Plan: jail.Plan{ID: "x"}, RunDir: "/run/x", InitPath: "/init"},
		control.FromShim{Started: &control.Started{PID: 7}},
		control.FromShim{Failed: &control.Failed{Layer: "seccomp", Error: "no"}},
		control.FromShim{Exited: &control.Exited{Code: 1, Signal: 9}},
		control.Restrict{Rlimits: []jail.Rlimit{{}}}, control.Filter{Program: []byte{1, 2, 3}},
	} {
		text, err := json.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"plan":{"mounts":[{"kind":3}],"cgroup":null},"run_dir":7}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 1<<15 {
			// What a socket holds without a reader, with room for longer escapes.
			return
		}
		a, b := pair(t)
		defer a.Close()
		defer b.Close()
		for _, message := range []any{&control.Order{}, &control.FromShim{}, &control.Restrict{},
			&control.Filter{}} {
			if _, err := a.File().Write(frame(uint32(len(body)), string(body))); err != nil {
				t.Fatal(err)
			}
			files, err := b.Receive(message)
			if len(files) != 0 {
				t.Fatal("descriptors came from nowhere")
			}
			if err != nil {
				continue
			}
			again := reflect.New(reflect.TypeOf(message).Elem()).Interface()
			if err := b.Send(message); err != nil { // the other way
				t.Fatalf("%T was received and cannot be sent: %v", message, err)
			}
			if _, err := a.Receive(again); err != nil {
				t.Fatalf("%T was sent and cannot be received: %v", message, err)
			}
			first, _ := json.Marshal(message)
			second, _ := json.Marshal(again)
			if string(first) != string(second) {
				t.Errorf("%T: %s comes back as %s", message, first, second)
			}
		}
	})
}
