package gatekeepers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
)

// An httpAPI is the gatekeeper of an HTTP API with an OpenAPI document. Operations with GET and
// HEAD are reads, all others are actions. Requests go through jail's fetch proxy, which adds the
// credential.
type httpAPI struct {
	Settings
	Sender Sender
}

// A Sender sends one HTTP request.
type Sender interface {
	Send(context.Context, fetchrun.Request) (*fetchrun.Response, error)
}

// Limits in bytes.
const (
	maxDocument = 8 << 20
	// maxBefore bounds the resource before and after an action, as people see it.
	maxBefore = 5 << 10
)

// A document holds the used fields of an OpenAPI document.
type document struct {
	OpenAPI string `json:"openapi"`
	Info    struct {
		Title string `json:"title"`
	} `json:"info"`
	Servers []struct {
		URL string `json:"url"`
	} `json:"servers"`
	Paths      map[string]map[string]json.RawMessage `json:"paths"`
	Components struct {
		Parameters map[string]parameter `json:"parameters"`
	} `json:"components"`
}

// A parameter is a parameter of an operation, or a Ref to one of the components.
type parameter struct {
	Ref      string `json:"$ref,omitempty"`
	Name     string `json:"name"`
	In       string `json:"in"`
	Required bool   `json:"required,omitempty"`
	About    string `json:"description,omitempty"`
}

// An operation is a method of a path in the API. body says whether it takes a request body.
type operation struct {
	id, method, path, about string
	parameters              []parameter
	body                    bool
}

// operations holds the operations that agents may use, by operationId or a made-up name.
type operations map[string]operation

// verbs are the HTTP methods that a path in an OpenAPI document can have.
var verbs = []string{"get", "head", "put", "post", "delete", "patch", "options", "trace"}

func (o operation) reads() bool { return o.method == http.MethodGet || o.method == http.MethodHead }

// read parses the document. It returns the allowed operations, the base URL and the title.
func (a *httpAPI) read() (operations, *url.URL, string, error) {
	fail := func(err error) (operations, *url.URL, string, error) {
		if at, ok := errors.AsType[*os.PathError](err); ok {
			err = at.Err
		}
		return nil, nil, "", fmt.Errorf("OpenAPI document %s: %w", filepath.Base(a.File), err)
	}
	f, err := os.Open(a.File)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("it has more than %d MiB", maxDocument>>20)
	}
	if err != nil {
		return fail(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return fail(fmt.Errorf("%w: a document in YAML has to be converted to JSON", err))
	}
	if !strings.HasPrefix(d.OpenAPI, "3.") {
		return fail(fmt.Errorf("openapi is %.20q, want 3.0 or 3.1", d.OpenAPI))
	}
	base := a.URL
	if base == "" && len(d.Servers) > 0 {
		base = d.Servers[0].URL
	}
	u, err := url.Parse(strings.TrimSuffix(base, "/"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		return fail(fmt.Errorf("%.100q is no URL of an API: write url = \"https://HOST/PATH\" for the "+
			"gatekeeper", base))
	}
	all := operations{}
	for path, item := range d.Paths {
		if !strings.HasPrefix(path, "/") {
			return fail(fmt.Errorf("path %.80q does not begin with /", path))
		}
		shared, err := d.parameters(item["parameters"])
		if err != nil {
			return fail(fmt.Errorf("path %.80q: %w", path, err))
		}
		for _, verb := range verbs {
			if item[verb] == nil {
				continue
			}
			o, err := d.operation(path, verb, item[verb], shared)
			if err != nil {
				return fail(fmt.Errorf("%s %.80q: %w", verb, path, err))
			}
			if _, twice := all[o.id]; twice {
				return fail(fmt.Errorf("operationId %.80q is there more than once", o.id))
			}
			if len(a.Operations) == 0 || slices.Contains(a.Operations, o.id) {
				all[o.id] = o
			}
		}
	}
	return all, u, d.Info.Title, nil
}

func (d document) operation(path, verb string, text json.RawMessage,
	shared []parameter) (operation, error) {
	var of struct {
		ID         string          `json:"operationId"`
		Summary    string          `json:"summary"`
		Parameters json.RawMessage `json:"parameters"`
		Body       json.RawMessage `json:"requestBody"`
	}
	if err := json.Unmarshal(text, &of); err != nil {
		return operation{}, err
	}
	own, err := d.parameters(of.Parameters)
	if err != nil {
		return operation{}, err
	}
	for _, p := range shared {
		if !slices.ContainsFunc(own, func(o parameter) bool { return o.Name == p.Name && o.In == p.In }) {
			own = append(own, p)
		}
	}
	o := operation{id: of.ID, method: strings.ToUpper(verb), path: path, about: of.Summary,
		parameters: own, body: len(of.Body) > 0}
	o.id = cmp.Or(o.id, named(verb, path))
	if !approvals.IsActionName(o.id) {
		return o, fmt.Errorf("operationId %.80q is no name of letters, digits, _, . and -", o.id)
	}
	return o, nil
}

// named returns a name for an operation without an operationId, such as get_customers_id.
func named(verb, path string) string {
	words := strings.FieldsFunc(path, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	return strings.Join(append([]string{verb}, words...), "_")
}

func (d document) parameters(text json.RawMessage) ([]parameter, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var all []parameter
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	for i, p := range all {
		if p.Ref == "" {
			continue
		}
		name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/")
		found, there := d.Components.Parameters[name]
		if !ok || !there || found.Ref != "" {
			return nil, fmt.Errorf("parameter %.80q is not in the components of the document", p.Ref)
		}
		all[i] = found
	}
	return all, nil
}

// Describe returns the operations that agents may use, as reads and actions.
func (a *httpAPI) Describe(context.Context) (agentapi.Gatekeeper, error) {
	all, base, title, err := a.read()
	if err != nil {
		return agentapi.Gatekeeper{Kind: manifest.KindOpenAPI, Resource: a.URL}, err
	}
	d := agentapi.Gatekeeper{Kind: manifest.KindOpenAPI, About: title, Resource: base.String(),
		Reads: []agentapi.GateMethod{}, Actions: []agentapi.GateMethod{}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		o := all[name]
		args, err := json.Marshal(map[string]any{"method": o.method, "path": o.path,
			"parameters": append([]parameter{}, o.parameters...), "body": o.body})
		if err != nil {
			return d, err
		}
		m := agentapi.GateMethod{Name: name, About: o.about, Args: args}
		if o.reads() {
			d.Reads = append(d.Reads, m)
			continue
		}
		_, m.Reversible = all.back(o)
		d.Actions = append(d.Actions, m)
	}
	return d, nil
}

// back returns the PUT of the same path, with which the PUT or PATCH o can be reverted. ok is false
// for other methods, or if the path lacks GET or PUT.
func (all operations) back(o operation) (put operation, ok bool) {
	_, reads := all.sibling(o, http.MethodGet)
	put, puts := all.sibling(o, http.MethodPut)
	return put, reads && puts && (o.method == http.MethodPut || o.method == http.MethodPatch)
}

// sibling returns the operation with this method on the path of o, or false if there is none.
func (all operations) sibling(o operation, method string) (operation, bool) {
	for _, other := range all {
		if other.path == o.path && other.method == method {
			return other, true
		}
	}
	return operation{}, false
}

// arguments are the arguments of a call of an operation.
type arguments struct {
	// Params are path and query parameters by name: strings, numbers or booleans.
	Params map[string]json.RawMessage `json:"params,omitempty"`
	Body   json.RawMessage            `json:"body,omitempty"`
}

// url returns the URL of the operation with these arguments. It returns an error for missing,
// unknown or malformed parameters, and for a URL that is not below base.
func (o operation) url(base *url.URL, of arguments) (*url.URL, error) {
	left, path, query := maps.Clone(of.Params), o.path, url.Values{}
	for _, p := range o.parameters {
		raw, given := left[p.Name]
		if !given {
			if p.Required || p.In == "path" {
				return nil, bad("%s: parameter %q is missing", o.id, p.Name)
			}
			continue
		}
		delete(left, p.Name)
		v, err := plainValue(raw)
		if err != nil {
			return nil, bad("%s: parameter %q: %v", o.id, p.Name, err)
		}
		switch p.In {
		case "path":
			if v == "" || v == "." || v == ".." || strings.ContainsAny(v, `/\`) {
				return nil, bad("%s: parameter %q: %.40q is no part of a path", o.id, p.Name, v)
			}
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(v))
		case "query":
			query.Set(p.Name, v)
		default:
			return nil, bad("%s: parameter %q is in the %s, and a gatekeeper sends those of the path and "+
				"the query only", o.id, p.Name, p.In)
		}
	}
	for name := range left {
		return nil, bad("%s has no parameter %.60q", o.id, name)
	}
	if strings.ContainsAny(path, "{}") {
		return nil, fmt.Errorf("the document says nothing of a parameter in the path %s", o.path)
	}
	u, err := url.Parse(base.String() + path)
	if err != nil {
		return nil, err
	}
	if u.Host != base.Host || u.Scheme != base.Scheme || !strings.HasPrefix(u.Path, base.Path+"/") {
		return nil, fmt.Errorf("the path %s leads out of %s", o.path, base)
	}
	u.RawQuery = query.Encode()
	return u, nil
}

// plainValue returns a JSON string, number or boolean as the text of a parameter.
func plainValue(raw json.RawMessage) (string, error) {
	var v any
	if err := strict(raw, &v); err != nil {
		return "", errors.New("it is no value")
	}
	text := ""
	switch v := v.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	case bool:
		text = fmt.Sprint(v)
	default:
		return "", errors.New("want a text, a number, true or false")
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return "", errors.New("it has control characters")
	}
	return text, nil
}

// An answer is the HTTP response of the API. The body is in Body if it is JSON, else in Text.
type answer struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body,omitempty"`
	Text   string          `json:"text,omitempty"`
	etag   string
}

func (a answer) ok() bool { return a.Status/100 == 2 }

// said returns the text of an error that quotes the answer.
func (a answer) said() string {
	text := cmp.Or(a.Text, string(a.Body))
	return fmt.Sprintf("the API answered %d: %s", a.Status, runners.Printable(text, maxSaid))
}

// send sends a request and reads the response. id is the Idempotency-Key, empty for a read; etag is
// the value of If-Match, empty for none.
func (a *httpAPI) send(ctx context.Context, method string, to *url.URL, id, etag string,
	body []byte) (answer, error) {
	header := map[string]string{"Accept": "application/json"}
	if id != "" {
		header["Idempotency-Key"] = id
	}
	if etag != "" {
		header["If-Match"] = etag
	}
	res, err := a.Sender.Send(ctx, fetchrun.Request{For: "gatekeeper of " + to.Host, Method: method,
		URL: to, Credential: a.Credential, Header: header, Body: body})
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return answer{}, err
	}
	if len(text) > maxAnswer {
		return answer{}, tooLarge("the API answered with more than %d bytes", maxAnswer)
	}
	out := answer{Status: res.Status, etag: res.Header.Get("ETag")}
	if strings.HasPrefix(out.etag, "W/") {
		// If-Match does not accept a weak ETag: RFC 9110, section 13.1.1.
		out.etag = ""
	}
	if json.Valid(text) {
		out.Body = text
	} else {
		out.Text = strings.ToValidUTF8(string(text), "\ufffd")
	}
	return out, nil
}

// A call is an operation with its URL, its arguments, and all operations of the API.
type call struct {
	operation
	to  *url.URL
	of  arguments
	all operations
}

// call checks the arguments and returns the call of the read, or else action, with this name.
func (a *httpAPI) call(name string, reads bool, args json.RawMessage) (c call, err error) {
	if err := strict(args, &c.of); err != nil {
		return c, err
	}
	var base *url.URL
	if c.all, base, _, err = a.read(); err != nil {
		return c, err
	}
	var ok bool
	if c.operation, ok = c.all[name]; !ok || c.reads() != reads {
		what := map[bool]string{true: "reads", false: "actions"}[reads]
		return c, unknown(what, name, slices.DeleteFunc(slices.Sorted(maps.Keys(c.all)),
			func(n string) bool { return c.all[n].reads() != reads })...)
	}
	if len(c.of.Body) > 0 && (reads || !c.body) {
		return c, bad("%s takes no body", name)
	}
	c.to, err = c.url(base, c.of)
	return c, err
}

// approved returns the call of an approved action. The error wraps errChanged if its URL is no
// longer the one that people were shown.
func (a *httpAPI) approved(of Change) (call, error) {
	c, err := a.call(of.Action, false, of.Args)
	if err == nil && c.resource() != of.Resource {
		err = fmt.Errorf("%w: %s is at another URL now", errChanged, of.Action)
	}
	return c, err
}

// resource returns the method and the URL, as the name of the resource that people see.
func (c call) resource() string { return c.method + " " + c.to.String() }

// undoable reports whether an action can be reverted. It is false if the URL has a query: the query
// may select another resource than the path, and the PUT would not restore that.
func (c call) undoable() bool {
	_, ok := c.all.back(c.operation)
	return ok && c.to.RawQuery == ""
}

// get returns the GET of the same path, or false if there is none.
func (c call) get() (operation, bool) { return c.all.sibling(c.operation, http.MethodGet) }

// Read sends a GET or HEAD and returns the answer.
func (a *httpAPI) Read(ctx context.Context, method string, args json.RawMessage) (any, error) {
	c, err := a.call(method, true, args)
	if err != nil {
		return nil, err
	}
	return a.send(ctx, c.method, c.to, "", "", nil)
}

// Propose checks the action and only reads the resource, if its path has a GET.
func (a *httpAPI) Propose(ctx context.Context, action string, args json.RawMessage) (Change, error) {
	o, err := a.call(action, false, args)
	if err != nil {
		return Change{}, err
	}
	c := Change{Action: action, Args: args, Resource: o.resource()}
	if len(c.Resource) > 1<<10 {
		return c, tooLarge("the URL has %d bytes, more than 1 KiB", len(c.Resource))
	}
	get, ok := o.get()
	if !ok {
		return c, nil
	}
	now, err := a.current(ctx, get, o.to)
	if err != nil {
		return c, err
	}
	c.Before = shown(now)
	c.Reversible = o.undoable() && now.ok() && len(now.Body) > 0 && len(now.Body) <= maxBefore
	switch {
	case o.method == http.MethodPut && len(o.of.Body) <= maxBefore:
		c.After = o.of.Body
	case o.method == http.MethodPatch && len(now.Body) <= maxBefore:
		c.After = merged(now.Body, o.of.Body)
	case o.method == http.MethodDelete:
		c.After = json.RawMessage("null")
	}
	return c, nil
}

// current reads the resource at the URL of an action with its GET. It keeps only the query
// parameters that the GET has. A response 404 is not an error.
func (a *httpAPI) current(ctx context.Context, get operation, at *url.URL) (answer, error) {
	to, given, query := *at, at.Query(), url.Values{}
	for _, p := range get.parameters {
		switch {
		case p.In == "path":
		case p.In == "query" && given.Has(p.Name):
			query.Set(p.Name, given.Get(p.Name))
		case p.Required:
			return answer{}, fmt.Errorf("%s needs the parameter %q, so the resource cannot be read "+
				"before it is changed", get.id, p.Name)
		}
	}
	to.RawQuery = query.Encode()
	now, err := a.send(ctx, http.MethodGet, &to, "", "", nil)
	if err == nil && !now.ok() && now.Status != http.StatusNotFound {
		err = errors.New(now.said())
	}
	return now, err
}

// shown returns a resource as people see it: its JSON, its digest and size if it is longer than
// maxBefore, or JSON null after 404.
func shown(now answer) json.RawMessage {
	text := now.Body
	switch {
	case now.Status == http.StatusNotFound:
		return json.RawMessage("null")
	case len(text) == 0:
		// Encoding a string as JSON cannot fail.
		text, _ = json.Marshal(now.Text)
	}
	if len(text) > maxBefore {
		text, _ = json.Marshal(map[string]any{"sha256": sum(text), "bytes": len(text)})
	}
	return text
}

// merged returns the JSON value to after a merge patch (RFC 7386), for people to see.
func merged(to, patch json.RawMessage) json.RawMessage {
	var of, with map[string]json.RawMessage
	if json.Unmarshal(patch, &with) != nil || with == nil {
		return patch
	}
	if json.Unmarshal(to, &of) != nil || of == nil {
		of = map[string]json.RawMessage{}
	}
	for name, v := range with {
		if string(v) == "null" {
			delete(of, name)
		} else {
			of[name] = merged(of[name], v)
		}
	}
	out, err := json.Marshal(of)
	if err != nil {
		return nil
	}
	return out
}

// Apply sends the request, or returns errChanged if the resource has changed since the proposal.
func (a *httpAPI) Apply(ctx context.Context, id string, c Change) (string, error) {
	o, err := a.approved(c)
	if err != nil {
		return "", err
	}
	etag := ""
	get, reads := o.get()
	if reads != (len(c.Before) > 0) {
		return "", fmt.Errorf("%w: the operations of %s are others now", errChanged, o.to.Path)
	}
	if reads {
		now, err := a.current(ctx, get, o.to)
		if err != nil {
			return "", err
		}
		if !same(shown(now), c.Before) {
			return "", fmt.Errorf("%w: %s is not as it was", errChanged, o.to.Path)
		}
		etag = now.etag
	}
	res, err := a.send(ctx, o.method, o.to, id, etag, o.of.Body)
	switch {
	case err != nil:
		return "", fmt.Errorf("whether the API has carried the request out is not known: %w", err)
	case res.Status == http.StatusPreconditionFailed:
		return "", fmt.Errorf("%w: %s", errChanged, res.said())
	case !res.ok():
		return "", errors.New(res.said())
	}
	outcome := fmt.Sprintf("status %d", res.Status)
	if o.undoable() {
		now, err := a.current(ctx, get, o.to)
		if err != nil {
			// The action is done. Without the digest it cannot be reverted.
			return outcome, nil
		}
		outcome += leaves + sum(shown(now))
	}
	return outcome, nil
}

// leaves precedes the digest of the resource after Apply in an outcome. Revert looks for it.
const leaves = ", the resource is sha256:"

// Revert restores the resource with a PUT, or returns errChanged if it has changed since Apply.
func (a *httpAPI) Revert(ctx context.Context, id, outcome string, c Change) error {
	o, err := a.approved(c)
	if err != nil {
		return err
	}
	put, ok := o.all.back(o.operation)
	_, digest, said := strings.Cut(outcome, leaves)
	if !ok || !said {
		return errors.New("what the resource was afterwards is not known, so it is not put back")
	}
	get, _ := o.get()
	now, err := a.current(ctx, get, o.to)
	if err != nil {
		return err
	}
	if sum(shown(now)) != digest {
		return fmt.Errorf("%w: %s is not as the action left it", errChanged, o.to.Path)
	}
	res, err := a.send(ctx, put.method, o.to, id+"/revert", now.etag, c.Before)
	switch {
	case err != nil:
		return fmt.Errorf("whether the API has put the resource back is not known: %w", err)
	case !res.ok():
		return errors.New(res.said())
	}
	return nil
}

// Settle always returns known as false: whether the API received the request cannot be found out.
func (a *httpAPI) Settle(context.Context, string, Change, bool) (Settled, bool, error) {
	return Settled{}, false, nil
}
