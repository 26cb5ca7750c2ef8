// Command splitter is the guest of an agent that splits its work. For the event "ask" three facets ask
// a model at one time, for "end" they are ended, and for "abort" one is ended while it works. The agent
// sends how long that took, in nanoseconds.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/runners/wasi/guestlib/agentlib/go/jailagent"
)

var names = []string{"a", "b", "c"}

// begins is how long a facet has to begin its work.
const begins = 500 * time.Millisecond

type parent struct{ jailagent.Base }

func (parent) OnEvent(e *jailagent.Event) (err error) {
	if e.FromAgent() {
		return nil
	}
	var all []jailagent.FacetCall
	for _, name := range names {
		_, no := jailagent.Facet(name, jailagent.Ask{Class: "worker", Bindings: []string{"AI", "STORAGE"}})
		err = errors.Join(err, no)
		all = append(all, jailagent.FacetCall{Name: name, Method: "ask"})
	}
	begun := time.Now()
	switch e.Text() {
	case "ask":
		results, no := jailagent.CallAll(all...)
		err = errors.Join(err, no)
		for _, r := range results {
			err = errors.Join(err, r.Read(nil))
		}
	case "end":
		for _, name := range names {
			err = errors.Join(err, jailagent.AbortFacet(name, "it is measured"))
		}
	case "abort":
		results, no := jailagent.CallAll(jailagent.FacetCall{Name: names[0], Method: "work"})
		if err = errors.Join(err, no); err == nil {
			err = results[0].Read(nil)
		}
		time.Sleep(begins)
		begun = time.Now()
		err = errors.Join(err, jailagent.AbortFacet(names[0], "it is measured"))
	}
	if err == nil {
		// It is for nobody else.
		_, err = jailagent.PubSub.Send(time.Since(begun).Nanoseconds(), jailagent.Type("result"))
	}
	return err
}

type worker struct{ jailagent.Base }

// OnCall asks the model, or sets the alarm of the work.
func (worker) OnCall(method string, _ json.RawMessage) (any, error) {
	if method == "work" {
		return nil, jailagent.SetAlarm("work", time.Millisecond, nil)
	}
	answer, err := jailagent.AI.Ask("What is there to do?")
	if err == nil && answer != "nothing" {
		err = fmt.Errorf("the model answers %q", answer)
	}
	return nil, err
}

// OnEvent works until it is ended.
func (worker) OnEvent(*jailagent.Event) error {
	for {
	}
}

func main() {
	jailagent.RunClass(map[string]jailagent.Agent{"": parent{}, "worker": worker{}})
}
