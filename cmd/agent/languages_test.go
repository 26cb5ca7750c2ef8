package agent_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/wasi/guestlib/agentlib"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// mains are the files of each language's main program: in the directory of an agent, and among the
// tests.
var mains = map[string][2]string{"python": {"main.py", "main.py"}, "js": {"main.js", "main.js"},
	"go": {"main.go", "main.go.txt"}, "rust": {"src/main.rs", "main.rs"}, "c": {"main.c", "main.c"}}

// made are the modules that agentDir has built, by language and main program.
var made sync.Map

// agentDir makes the directory of a new agent in a language and builds it. Where main is not empty it
// is the program in place of that of the template.
func agentDir(t *testing.T, language, main string) *manifest.Agent {
	t.Helper()
	files, err := agentlib.New(language, "ask"+language)
	if err != nil {
		t.Fatal(err)
	}
	if main != "" {
		text, err := os.ReadFile(filepath.Join("testdata", main, mains[language][1]))
		if err != nil {
			t.Fatal(err)
		}
		files[mains[language][0]] = text
		files["agent.toml"] = []byte(strings.ReplaceAll(string(files["agent.toml"]), "ai = false",
			"ai = true"))
	}
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := files["Makefile"]; ok {
		module, key := filepath.Join(dir, "ask"+language+".wasm"), [2]string{language, main}
		text, ok := made.Load(key)
		if ok {
			err = os.WriteFile(module, text.([]byte), 0o644)
		} else {
			build(t, language, dir)
			text, err = os.ReadFile(module)
			made.Store(key, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	a, err := manifest.Load(dir, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func build(t *testing.T, language, dir string) {
	t.Helper()
	args := []string{"-s", "-C", dir}
	path := os.Getenv("PATH")
	switch language {
	case "rust":
		const rustc, linker = "/usr/bin/rustc", "/usr/lib/llvm-14/bin/lld"
		cmdtest.Have(t, rustc, linker, "/usr/lib/rustlib/wasm32-wasi")
		bin := t.TempDir()
		if err := os.Symlink(linker, filepath.Join(bin, "rust-lld")); err != nil {
			t.Fatal(err)
		}
		path, args = bin+":"+path, append(args, "RUSTC="+rustc)
	case "c":
		cmdtest.Have(t, "/usr/include/wasm32-wasi", "/usr/lib/wasm32-wasi/libc.a")
		if exec.Command("sh", cmdtest.Tree("runners/tools/deps.sh"), "--check").Run() != nil {
			t.Skip("this host has no compiler of C for WebAssembly")
		}
	}
	cmd := exec.Command("make", args...)
	cmd.Env = append(os.Environ(), "PATH="+path, "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
}

// The agent of each language's template answers, keeps what it counts while it sleeps, and reminds.
func TestTemplates(t *testing.T) {
	for language := range mains {
		t.Run(language, func(t *testing.T) {
			h := cmdtest.New(t)
			cmdtest.CompiledBundles(h, language)
			a := startAgentd(t, h)
			dir := agentDir(t, language, "")
			name := dir.Name
			h.Wants(h.Jail("agent", "add", dir.Dir), 0, "")
			ask := func(text, want string) {
				t.Helper()
				o := h.Jail("agent", "send", "--wait", "--timeout", "10m", name, text)
				if o.Code != 0 || o.Out != want+"\n" {
					t.Fatalf("%s: %+v\n%+v", text, o, a.instance(name))
				}
			}
			ask("hé\"llo", "echo: hé\"llo (1)")
			ask("again", "echo: again (2)")
			// It sleeps, and wakes for the next event.
			h.Wants(h.Jail("agent", "pause", name), 0, "")
			cmdtest.Eventually(t, "it sleeps", func() bool {
				return a.instance(name).State == "dormant"
			})
			h.Wants(h.Jail("agent", "resume", name), 0, "")
			ask("remind of tea", "I will remind you")
			log := func() string { return h.Jail("agent", "log", "--json", name).Out }
			cmdtest.Eventually(t, "it reminds", func() bool {
				return strings.Contains(log(), `"data":"reminder: of tea"`)
			})
			ask("and now", "echo: and now (3)")
			if language == "js" {
				branch(t, h, a, dir)
				ask("still", "echo: still (4)")
			}
		})
	}
}

// branch makes a branch of an agent that sleeps, which begins with what the agent has counted.
func branch(t *testing.T, h *cmdtest.Host, a *agentd, of *manifest.Agent) {
	t.Helper()
	name, dir := of.Name+"-try", t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(of.Dir)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, manifest.File)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ReplaceAll(string(text), of.Name, name)
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("agent", "pause", of.Name), 0, "")
	cmdtest.Eventually(t, "it sleeps", func() bool {
		return a.instance(of.Name).State == "dormant"
	})
	h.Wants(h.Jail("agent", "add", "--state-of", of.Name, dir), 0, "")
	h.Wants(h.Jail("agent", "resume", of.Name), 0, "")
	o := h.Jail("agent", "send", "--wait", "--timeout", "10m", name, "try")
	if o.Code != 0 || o.Out != "echo: try (4)\n" {
		t.Errorf("%+v\n%+v", o, a.instance(name))
	}
}

// asked are the effects of an event of the asker, of which the model's answer is in parts.
func asked(id string, parts ...string) (all []agent.Effect) {
	add := func(e agent.Effect, data string) {
		e.N = len(all) + 1
		if data != "" {
			e.Data = json.RawMessage(data)
		}
		all = append(all, e)
	}
	add(agent.Effect{Op: agent.OpSend, ReplyTo: id}, `"…"`)
	for _, p := range parts[1:] {
		add(agent.Effect{Op: agent.OpSend, To: "other", Type: "part"}, fmt.Sprintf("%q", "part "+p))
	}
	message := fmt.Sprintf("agent:root:test/%s/1", id)
	add(agent.Effect{Op: agent.OpUpdate, ID: message}, fmt.Sprintf("%q", parts[0]))
	add(agent.Effect{Op: agent.OpComplete, ID: message}, "")
	add(agent.Effect{Op: agent.OpState}, `{"asked":`+id+`}`)
	add(agent.Effect{Op: agent.OpSettings}, `{"roles":["fast"]}`)
	add(agent.Effect{Op: agent.OpClearAlarm, Name: "none"}, "")
	return all
}

// The library of each language sends, updates, completes, logs, asks a model in each of the three
// forms, takes a stream whose parts are cut anywhere, and says which event failed.
func TestLibraries(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	cmdtest.CompiledBundles(h.Host, "python", "js")
	chat := `data: {"choices":[{"delta":{"content":"hé"}}]}` + "\n\n" +
		`data: {"choices":[{"delta":{}}]}` + "\r\n\r\n" +
		`data: {"choices":[{"delta":{"content":"llo"}}]}` + "\n\ndata: [DONE]\n\n"
	messages := "event: message_start\n" + `data: {"type":"message_start"}` + "\n\n" +
		`data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"hé"}}` + "\n\n" +
		`data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"llo"}}` + "\n\n"
	responses := `data: {"type":"response.output_text.delta","delta":"hé"}` + "\n\n" +
		`data: {"type":"response.output_text.delta","delta":"llo"}` + "\n\n"
	for language := range mains {
		t.Run(language, func(t *testing.T) {
			dir := agentDir(t, language, "asker")
			r, _ := wake(t, h, root, requestOf(t, h, dir))
			seq := uint64(0)
			ask := func(text string, replies ...agent.Reply) *agent.Report {
				t.Helper()
				seq++
				data, _ := json.Marshal(text)
				r.order(agent.Order{Event: &agent.Event{Seq: seq, ID: fmt.Sprint(seq), Source: "user",
					Type: agent.TypeMessage, Kind: agent.KindNew, Attempt: 1, Data: data}})
				logged := false
				for {
					rep := r.report()
					switch {
					case rep == nil:
						t.Fatalf("the run ended: %s%s", r.end(), r.output())
					case rep.Call != nil && rep.Call.Method == "listRoles":
						r.order(agent.Order{Reply: &agent.Reply{ID: rep.Call.ID,
							Result: json.RawMessage(`["fast"]`)}})
					case rep.Call != nil && rep.Call.Method == agent.MethodCommand:
						var p struct {
							Argv, Limits []string
							Stdin        string
						}
						if err := json.Unmarshal(rep.Call.Params, &p); err != nil || p.Stdin != "a\"b\n" ||
							!slices.Equal(p.Argv, []string{"wc", "-l"}) ||
							!slices.Equal(p.Limits, []string{"wall=5s"}) {
							t.Errorf("%+v, %s", rep.Call, rep.Call.Params)
						}
						replies[0].ID = rep.Call.ID
						r.order(agent.Order{Reply: &replies[0]})
					case rep.Call != nil:
						var p map[string]any
						if err := json.Unmarshal(rep.Call.Params, &p); err != nil || p["role"] != "fast" ||
							rep.Call.Method != "streamText" {
							t.Errorf("%+v, %s", rep.Call, rep.Call.Params)
						}
						for _, reply := range replies {
							reply.ID = rep.Call.ID
							r.order(agent.Order{Reply: &reply})
						}
					case rep.Log != nil:
						logged = *rep.Log == agent.Log{Level: "warn", Message: "asked"}
					case rep.Done != nil || rep.Failed != nil:
						if rep.Done != nil && !logged && text == "hi" {
							t.Error("nothing was logged")
						}
						return rep
					}
				}
			}
			wants := func(what string, rep *agent.Report, parts ...string) {
				t.Helper()
				got, _ := json.Marshal(rep.Done)
				want, _ := json.Marshal(agent.Effects{Seq: seq, Effects: asked(fmt.Sprint(seq),
					parts...)})
				if string(got) != string(want) {
					t.Errorf("%s: %+v\n%s\nwant\n%s\n%s", what, rep.Failed, got, want, r.output())
				}
			}
			for what, stream := range map[string]string{"chat": chat, "messages": messages,
				"responses": responses} {
				// In the middle of a character.
				at := strings.Index(stream, "é") + 1
				wants(what, ask("hi", agent.Reply{Chunk: []byte(stream[:at]), More: true},
					agent.Reply{Chunk: []byte(stream[at:]), More: true}, agent.Reply{}),
					"héllo", "hé", "llo")
			}
			no := &agent.Error{Code: agent.ErrBudget, Message: "no more"}
			wants("an error", ask("hi", agent.Reply{Error: no}), "budget: no more")
			wants("an error later", ask("hi", agent.Reply{Chunk: []byte(chat[:strings.Index(chat,
				"\n\n")+2]), More: true}, agent.Reply{Error: no}), "budget: no more", "hé")
			for said, reply := range map[string]agent.Reply{
				"3": {Result: json.RawMessage(`{"exitCode":3,"stdout":"1\n","stderr":"",` +
					`"truncated":false,"meta":{"run":"r","wall_ms":1}}`)},
				`"pending"`: {Error: &agent.Error{Code: agent.ErrPending, Message: "it waits"}}} {
				if rep := ask("tool", reply); rep.Done == nil || len(rep.Done.Effects) != 1 ||
					string(rep.Done.Effects[0].Data) != said {
					t.Errorf("a tool, of which is said %s: %+v, %+v", said, rep.Done, rep.Failed)
				}
			}
			// What is to be approved has the id that the event about it answers to.
			if rep := ask("later"); rep.Done == nil || len(rep.Done.Effects) != 3 {
				t.Errorf("an alarm and a proposal: %+v, %+v", rep.Done, rep.Failed)
			} else if e := rep.Done.Effects; e[0].Op != agent.OpAlarm || e[0].Name != "tea" ||
				!e[0].At.Equal(time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)) ||
				string(e[0].Data) != `"green"` || e[1].Op != agent.OpPropose ||
				string(e[1].Data) != `{"type":"brew"}` ||
				string(e[2].Data) != fmt.Sprintf("%q", fmt.Sprintf("agent:root:test/%d/2", seq)) {
				t.Errorf("an alarm and a proposal: %+v", e)
			}
			if rep := ask("fail"); rep.Failed == nil || rep.Failed.Seq != seq ||
				language != "c" && !strings.Contains(rep.Failed.Message, "as it was asked to") {
				t.Errorf("an event that fails: %+v", rep)
			}
			// After a failed event the agent gets no other, and ends.
			if res, _ := r.rest(); res.ExitCode != 0 || res.Error != nil {
				t.Errorf("%+v\n%s", res, r.output())
			}
		})
	}
}

// requestOf asks for an agent of a directory, whose files a script has at /agent.
func requestOf(t *testing.T, h *cmdtest.PolicyHost, a *manifest.Agent) message.Request {
	t.Helper()
	req := request(t, root, state(t, h, root))
	req.Agent.DeadlineMS = 600_000
	if !a.Script() {
		req.Tool = filepath.Join(a.Dir, a.Module)
		return req
	}
	req.Tool, req.Args = a.Module, runners.Texts{"/agent/" + a.Args[0]}
	req.Profile, req.PolicyName = "", "files"
	req.Policy = strings.Replace(profile, "modules =", `allow = ["python/*", "js/*"]`+"\nmodules =", 1) +
		fmt.Sprintf("[[mount]]\nsource = %q\ntarget = \"/agent\"\naccess = \"read\"\n", a.Dir)
	return req
}

// An agent without the capability network has no way to the fetch proxy, whatever its policy grants;
// with it, the same agent has, and a repeated event repeats the Idempotency-Key of each of its requests.
func TestNetwork(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	cmdtest.CompiledBundles(h.Host, "js")
	keys := make(chan string, 10)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
	}))
	defer web.Close()
	port := web.Listener.Addr().(*net.TCPAddr).Port
	cmdtest.AddSettings(h.Host, fmt.Sprintf("[[internal]]\nhost = \"web.example.com\"\n"+
		"addresses = [\"127.0.0.1\"]\nports = [%d]\nresolve = false\n", port))
	dir := agentDir(t, "js", "")
	main := fmt.Sprintf(`import * as jail from "jail";
import { fetch, pubsub, run } from "./jail_agent.js";
run({ onEvent(e) {
  const there = jail.env("JAIL_FETCH_FD") !== undefined;
  if (there) {
    for (const path of ["a", "b"]) fetch("http://web.example.com:%d/" + path);
    if (e.attempt === 1) throw new Error("once more");
  }
  pubsub.send(there);
} });
`, port)
	if err := os.WriteFile(filepath.Join(dir.Dir, "main.js"), []byte(main), 0o644); err != nil {
		t.Fatal(err)
	}
	for n, network := range []bool{false, true, true} {
		req := requestOf(t, h, dir)
		req.Policy += fmt.Sprintf("[[fetch.allow]]\nhost = \"web.example.com\"\nports = [%d]\n"+
			"methods = [\"GET\"]\npaths = [\"/**\"]\n[fetch.limits]\nrequests = 2\n"+
			"bytes_in = \"1MiB\"\nbytes_out = \"1MiB\"\nconcurrent = 1\ntimeout = \"60s\"\n", port)
		req.Agent.Network = network
		r, _ := wake(t, h, root, req)
		r.order(agent.Order{Event: &agent.Event{Seq: 7, ID: "1", Source: "user",
			Type: agent.TypeMessage, Kind: agent.KindNew, Attempt: max(n, 1),
			Data: json.RawMessage(`"x"`)}})
		rep := r.report()
		if n == 1 {
			if rep == nil || rep.Failed == nil || !strings.Contains(rep.Failed.Message, "once more") {
				t.Errorf("the first attempt: %+v\n%s", rep, r.output())
			}
			r.rest()
		} else if rep == nil || rep.Done == nil || string(rep.Done.Effects[0].Data) != fmt.Sprint(network) {
			t.Errorf("network %v: %+v\n%s", network, rep, r.output())
		} else {
			r.sleep()
		}
		for f := 1; network && f <= 2; f++ {
			if key, want := <-keys, fmt.Sprintf("%s/7/f%d", req.Agent.ID, f); key != want {
				t.Errorf("attempt %d: request %d has the key %q, want %q", n, f, key, want)
			}
		}
	}
}

// TestNativeFetch: the requests of a program of the host have the keys of its event as those of a module
// have, over http and inside the tunnel of its https.
func TestNativeFetch(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/python3")
	h := cmdtest.NewPolicyHost(t, nil)
	keys := make(chan string, 10)
	answer := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
	})
	web, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer web.Close()
	defer secure.Close()
	cmdtest.TrustServer(h.Host, secure)
	ports := fmt.Sprintf("%d, %d", web.Listener.Addr().(*net.TCPAddr).Port,
		secure.Listener.Addr().(*net.TCPAddr).Port)
	cmdtest.AddSettings(h.Host, fmt.Sprintf("[[internal]]\nhost = \"web.example.com\"\n"+
		"addresses = [\"127.0.0.1\"]\nports = [%s]\nresolve = false\n", ports))
	dir := agentDir(t, "python", "")
	main := fmt.Sprintf(`import urllib.request
import jail_agent

class Fetcher(jail_agent.Agent):
    def on_event(self, event):
        for scheme, port in zip(("http", "https"), (%s)):
            urllib.request.urlopen("%%s://web.example.com:%%d/" %% (scheme, port)).close()
        if event.attempt == 1:
            raise ValueError("once more")

jail_agent.run(Fetcher())
`, ports)
	if err := os.WriteFile(filepath.Join(dir.Dir, "main.py"), []byte(main), 0o644); err != nil {
		t.Fatal(err)
	}
	req := request(t, root, state(t, h, root))
	req.Tool, req.Args = "/usr/bin/python3", runners.Texts{"/agent/main.py"}
	req.Profile, req.PolicyName, req.Agent.Network = "", "fetches", true
	req.Policy = fmt.Sprintf("policy = 1\nname = \"fetches\"\ninclude = [\"agent-native\"]\n"+
		"[[mount]]\nsource = %q\ntarget = \"/agent\"\naccess = \"read\"\n[[fetch.allow]]\n"+
		"host = \"web.example.com\"\nports = [%s]\nmethods = [\"GET\"]\npaths = [\"/**\"]\n"+
		"[fetch.limits]\nrequests = 10\nbytes_in = \"1MiB\"\nbytes_out = \"1MiB\"\nconcurrent = 2\n"+
		"timeout = \"60s\"\n", dir.Dir, ports)
	for attempt := 1; attempt <= 2; attempt++ {
		r, _ := wake(t, h, root, req)
		r.order(agent.Order{Event: &agent.Event{Seq: 7, ID: "1", Source: "user",
			Type: agent.TypeMessage, Kind: agent.KindNew, Attempt: attempt, Data: json.RawMessage(`"x"`)}})
		rep := r.report()
		if rep == nil || attempt == 1 && (rep.Failed == nil ||
			!strings.Contains(rep.Failed.Message, "once more")) || attempt == 2 && rep.Done == nil {
			t.Fatalf("attempt %d: %+v\n%s", attempt, rep, r.output())
		}
		r.kill()
		for f := 1; f <= 2; f++ {
			if key, want := <-keys, fmt.Sprintf("%s/7/f%d", req.Agent.ID, f); key != want {
				t.Errorf("attempt %d: request %d has the key %q, want %q", attempt, f, key, want)
			}
		}
	}
}

// TestCapabilityOff: in each language a binding that the manifest does not ask for is not there. A
// module that imports it is refused by name before anything runs; a script that calls it gets an
// error, and its event fails. TestLibraries is the control, in which the same programs have it.
func TestCapabilityOff(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	cmdtest.CompiledBundles(h.Host, "python", "js")
	for language := range mains {
		t.Run(language, func(t *testing.T) {
			dir := agentDir(t, language, "asker")
			path := filepath.Join(dir.Dir, manifest.File)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			off := strings.ReplaceAll(string(text), "ai = true", "ai = false")
			if err := os.WriteFile(path, []byte(off), 0o644); err != nil {
				t.Fatal(err)
			}
			a, err := manifest.Load(dir.Dir, manifest.Options{})
			if !dir.Script() {
				if err == nil || !strings.Contains(err.Error(), "it imports jail_agent_ai_v1.") ||
					!strings.Contains(err.Error(), "capabilities.ai is false") {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			req := requestOf(t, h, a)
			req.Agent.Bindings = a.Bindings()
			r, _ := wake(t, h, root, req)
			r.order(agent.Order{Event: &agent.Event{Seq: 1, ID: "1", Source: "user",
				Type: agent.TypeMessage, Kind: agent.KindNew, Attempt: 1, Data: json.RawMessage(`"hi"`)}})
			for {
				rep := r.report()
				switch {
				case rep == nil:
					t.Fatalf("the run ended: %s%s", r.end(), r.output())
				case rep.Call != nil:
					t.Fatalf("it called %+v", rep.Call)
				case rep.Done != nil:
					t.Fatalf("its event is done: %+v", rep.Done)
				case rep.Failed != nil:
					if !strings.Contains(rep.Failed.Message, "there is no binding") {
						t.Errorf("%+v", rep.Failed)
					}
					r.rest()
					return
				}
			}
		})
	}
}
