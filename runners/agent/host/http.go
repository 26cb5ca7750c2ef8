package host

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
)

// ServeHTTP answers the calls of a guest that speaks HTTP (docs/agent-abi.md):
//
//	POST /rpc/BINDING       {"method": …, "params": …}   ->   {"result": …} or {"error": …}
//	GET /events?wait=MS                                  ->   what Wait returns
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if binding, ok := strings.CutPrefix(r.URL.Path, "/rpc/"); ok && r.Method == http.MethodPost {
		h.serveCall(w, r, binding)
		return
	}
	if h.o.Once || r.URL.Path != "/events" || r.Method != http.MethodGet {
		refuse(w, http.StatusNotFound, agent.Errorf(agent.ErrNoMethod, "want POST /rpc/PUBSUB, "+
			"STORAGE, AI or HOST, or GET /events"))
		return
	}
	ms := int64(maxWait / time.Millisecond)
	if text := r.URL.Query().Get("wait"); text != "" {
		var err error
		if ms, err = strconv.ParseInt(text, 10, 32); err != nil || ms < 0 {
			refuse(w, http.StatusBadRequest, badParams("wait: want milliseconds"))
			return
		}
	}
	write(w, http.StatusOK, h.Await(time.Duration(ms)*time.Millisecond))
}

// serveCall answers an HTTP request that calls a method of a binding.
func (h *Host) serveCall(w http.ResponseWriter, r *http.Request, binding string) {
	// 4 KiB are enough for the method's name and the JSON around the parameters.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body,
		int64(agent.MaxParamsOf(binding, agent.MethodLoad))+4<<10))
	if err != nil {
		refuse(w, http.StatusBadRequest, agent.Errorf(agent.ErrTooLarge, "%v", err))
		return
	}
	var call struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := agent.Params(body, &call); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	a := h.Call(binding, call.Method, call.Params)
	defer a.Close()
	if !a.Stream {
		w.Header().Set("Content-Type", "application/json")
		// Ignore the error: the guest may be gone.
		_, _ = io.Copy(w, a)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := a.Read(buf)
		if n > 0 {
			if _, gone := w.Write(buf[:n]); gone != nil || flusher.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func refuse(w http.ResponseWriter, status int, err error) { write(w, status, envelope(nil, err)) }

func write(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// Await calls Wait and returns the result as JSON.
func (h *Host) Await(d time.Duration) []byte {
	text, err := json.Marshal(h.Wait(d))
	if err != nil {
		// Data is valid JSON: it came as such.
		panic("agent: bug: " + err.Error())
	}
	return text
}

// Ask calls Call, for a caller that does not need to know whether the answer is a stream.
func (h *Host) Ask(binding, method string, params []byte) io.ReadCloser {
	return h.Call(binding, method, params)
}
