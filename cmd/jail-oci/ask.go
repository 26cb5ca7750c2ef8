package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail/oci"
)

// askPatience is the timeout of a request to jaild.
const askPatience = time.Minute

// socket returns the path of jaild's socket.
func socket() string {
	if s := os.Getenv("JAIL_SOCKET"); s != "" {
		return s
	}
	if dir := os.Getenv("JAIL_STATE"); dir != "" {
		return filepath.Join(dir, "jail.sock")
	}
	return "/run/jail/jail.sock"
}

// hinted is an error of jaild with a hint of what to do about it.
type hinted struct{ message, hint string }

func (h *hinted) Error() string { return h.message }

// ask sends in to jaild by POST to path and decodes the response into out.
func ask(path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	at := socket()
	client := http.Client{Timeout: askPatience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", at)
		}}}
	answer, err := client.Post("http://jail"+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return &hinted{fmt.Sprintf("no jaild answers at %s, and no container starts without it: %v", at,
			cause(err)), "start jaild, or set JAIL_SOCKET for the container engine"}
	}
	defer answer.Body.Close()
	d := json.NewDecoder(answer.Body)
	if answer.StatusCode != http.StatusOK {
		var failure struct {
			Error struct{ Message, Hint string }
		}
		if err := d.Decode(&failure); err != nil || failure.Error.Message == "" {
			return fmt.Errorf("jaild at %s: no answer that makes sense: %s", at, answer.Status)
		}
		return &hinted{failure.Error.Message, failure.Error.Hint}
	}
	if out == nil {
		return nil
	}
	if err := d.Decode(out); err != nil {
		return fmt.Errorf("jaild at %s: %w", at, err)
	}
	return nil
}

// cause returns the text of an error of net/http without the method and the address.
func cause(err error) string {
	_, last, _ := strings.Cut(err.Error(), ": ")
	return last
}

func askPlan(r oci.Request) (p oci.Plan, err error) {
	asked, err := r.Ask()
	if err != nil {
		return p, err
	}
	var planned oci.Planned
	if err := ask(oci.PathContainers, asked, &planned); err != nil {
		return p, err
	}
	return p, json.Unmarshal(planned.Plan, &p)
}

func report(p oci.Plan, r oci.Made) error {
	return ask(oci.PathContainers+"/"+string(p.ID)+oci.ReportSuffix, r, nil)
}

// reportDeleted tells jaild that a container has stopped and waits until jaild has read its usage.
// Errors are ignored: the container is deleted without jaild too.
func reportDeleted(p oci.Plan) { _ = report(p, oci.Made{Deleted: true}) }

func askExec(p oci.Plan, process specs.Process) (granted specs.Process, err error) {
	text, err := json.Marshal(process)
	if err != nil {
		return granted, err
	}
	var answer oci.GrantedExec
	if err := ask(oci.PathContainers+"/"+string(p.ID)+oci.ExecSuffix, oci.AskExec{Process: text},
		&answer); err != nil {
		return granted, err
	}
	return granted, json.Unmarshal(answer.Process, &granted)
}
