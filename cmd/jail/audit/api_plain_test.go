package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// TestPlainAPI asks the daemon as curl --unix-socket does: a request in JSON, and the result as
// JSON.
func TestPlainAPI(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(h.State, "jail.sock"))
	}}}
	defer client.CloseIdleConnections()
	ask := func(method, path string, body any) (int, []byte) {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequest(method, "http://jail"+path, bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl -d
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, answer
	}
	result := func(path string, body any) (res message.Result) {
		t.Helper()
		code, answer := ask("POST", path, body)
		if err := json.Unmarshal(answer, &res); code != http.StatusOK || err != nil {
			t.Fatalf("%d, %v: %s", code, err, answer)
		}
		return res
	}
	res := result("/v1/runs", message.Request{ID: "plain", Tool: "sh",
		Script: &message.Script{Name: "-c",
			Text: "cat; echo out; echo err >&2; touch made; exit 3"}, Dir: h.Work})
	if res.ID != "plain" || len(res.GlobalID) != 26 || res.ExitCode != 3 ||
		string(res.Stdout) != "out\n" || string(res.Stderr) != "err\n" || res.Changes.Added != 1 {
		t.Errorf("%+v", res)
	}
	h.Wants(h.Jail("diff", "plain"), 0, "")
	h.Discard("plain")
	res = result("/v1/runs", message.Request{Tool: "no-such-tool", Dir: h.Work})
	if res.ExitCode != 127 || res.Error == nil || res.Error.Code != problem.NotFound {
		t.Errorf("%+v", res)
	}
	if code, answer := ask("POST", "/v1/runs",
		map[string]string{"tol": "ls"}); code != http.StatusBadRequest || !bytes.Contains(answer,
		[]byte(`unknown field`)) {
		t.Errorf("%d: %s", code, answer)
	}
	session := h.Session("--no-workspace")
	if res := result("/v1/sessions/"+session+"/exec", message.ExecRequest{Tool: "echo",
		Args: []string{"hello"}, Dir: h.Work}); string(res.Stdout) != "hello\n" ||
		res.Session != session {
		t.Errorf("%+v", res)
	}
	h.StopSession(session, 0)

	code, answer := ask("GET", "/v1/openapi.json", nil)
	var document struct {
		OpenAPI string
		Paths   map[string]any
	}
	if err := json.Unmarshal(answer, &document); code != http.StatusOK || err != nil ||
		document.OpenAPI != "3.1.0" || document.Paths["/v1/runs"] == nil {
		t.Errorf("%d, %v: %.100s", code, err, answer)
	}
}
