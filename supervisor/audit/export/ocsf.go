package export

import (
	"fmt"
	"maps"
	"path"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// ocsfVersion is the version of the schema (schema.ocsf.io).
const ocsfVersion = "1.3.0"

// class is an event class of the schema.
type class struct {
	uid, category int
	name, group   string
}

var (
	baseEvent      = class{0, 0, "Base Event", "Uncategorized"}
	fileActivity   = class{1001, 1, "File System Activity", "System Activity"}
	processClass   = class{1007, 1, "Process Activity", "System Activity"}
	detection      = class{2004, 2, "Detection Finding", "Findings"}
	entityClass    = class{3004, 3, "Entity Management", "Identity & Access Management"}
	httpActivity   = class{4002, 4, "HTTP Activity", "Network Activity"}
	lifecycleClass = class{6002, 6, "Application Lifecycle", "Application Activity"}
)

// httpActivities maps HTTP methods to the schema's activity numbers.
var httpActivities = map[string]int{"CONNECT": 1, "DELETE": 2, "GET": 3, "HEAD": 4, "OPTIONS": 5,
	"POST": 6, "PUT": 7, "TRACE": 8}

const otherActivity = 99

// ocsf returns a record as an event of the schema. Fields that the schema does not have are in
// "unmapped", and the whole record is in "raw_data".
func ocsf(h Host, r audit.Record) []byte {
	c, activity, own := ocsfClass(r)
	unmapped := object{"run": r.Run, "session": r.Session, "policy": r.Policy}
	for _, f := range r.Fields {
		unmapped[f.Name] = f.Value
	}
	if r.Cause != 0 {
		unmapped["cause"] = r.Cause
	}
	e := object{"category_uid": c.category, "category_name": c.group, "class_uid": c.uid,
		"class_name": c.name, "activity_id": activity,
		"type_uid": c.uid*100 + activity, "time": r.Time.UnixMilli(),
		"severity_id": ocsfSeverity(r), "message": summary(r), "raw_data": string(r.Line),
		"metadata": object{"version": ocsfVersion, "uid": fmt.Sprint(r.Seq), "sequence": r.Seq,
			"event_code": string(r.Type), "log_name": "jail audit",
			"original_time": r.Time, "correlation_uid": r.ID(), "product": object{"name": "jail",
				"vendor_name": "jail", "version": h.Version}},
		"device": object{"hostname": h.Name, "type_id": 0, "name": h.Name},
		"actor": object{"user": object{"uid": fmt.Sprint(r.Actor.UID)},
			"process": object{"pid": r.Actor.PID, "file": ocsfFile(r.Actor.Exe)}},
		"unmapped": unmapped}
	if activity == otherActivity {
		e["activity_name"] = string(r.Type)
	}
	// action_id: 1 allowed, 2 denied. disposition_id and status_id have the outcome.
	switch {
	case r.Decision() == audit.DecisionDenied:
		e["action_id"], e["disposition_id"], e["status_id"] = 2, 2, 2
	case r.Decision() == audit.DecisionAllowed:
		e["action_id"], e["disposition_id"] = 1, 1
	}
	if why := text(r, "error"); why != "" {
		e["status_id"], e["status_detail"] = 2, why
	}
	maps.Copy(e, own)
	return compact(e)
}

// ocsfClass returns the event class of a record, the activity number, and the fields that the class
// requires.
func ocsfClass(r audit.Record) (class, int, object) {
	process := func(name string) object {
		p := object{"name": path.Base(name), "file": ocsfFile(name)}
		if pid := r.Int("pid"); pid != 0 {
			p["pid"] = pid
		}
		if argv := r.Texts("argv"); len(argv) > 0 {
			// As a list: joined words could be read in several ways.
			p["cmd_line"] = string(r.Field("argv"))
		}
		return p
	}
	entity := func(kind, name string) object {
		return object{"entity": object{"type": kind, "name": name, "uid": text(r, "digest")}}
	}
	switch r.Type {
	case audit.TypeRunStarted:
		return processClass, 1, object{"process": process(text(r, "tool"))}
	case audit.TypeExec:
		return processClass, 1, object{"process": process(text(r, "program"))}
	case audit.TypeRunFinished:
		return processClass, 2, object{"process": process(r.Run), "exit_code": r.Int("exit_code")}
	case audit.TypeFile:
		activity := 14 // open
		if text(r, "kind") == "write" {
			activity = 3 // update
		}
		return fileActivity, activity, object{"file": ocsfFile(text(r, "path")),
			"count": r.Int("count")}
	case audit.TypeFetch:
		return ocsfFetch(r)
	case audit.TypeDenied:
		return detection, 1, object{"finding_info": object{"uid": fmt.Sprint(r.Seq),
			"title": summary(r), "types": []string{"refused by " + text(r, "layer")}},
			"count": max(r.Int("count"), 1)}
	case audit.TypeLimit:
		return detection, 1, object{"finding_info": object{"uid": fmt.Sprint(r.Seq),
			"title": summary(r), "types": []string{"limit met"}}}
	case audit.TypeWorkspaceChanged, audit.TypeWorkspaceCommitted, audit.TypeWorkspaceReverted:
		return entityClass, 3, entity("workspace", text(r, "workspace"))
	case audit.TypeWorkspaceDiscarded:
		return entityClass, 4, entity("workspace", text(r, "workspace"))
	case audit.TypePolicyLoaded:
		return entityClass, 3, entity("policy", text(r, "name"))
	case audit.TypeToolKeys:
		return entityClass, 3, entity("keys", text(r, "publisher"))
	case audit.TypeCredentialUsed:
		return entityClass, 2, entity("credential", text(r, "name"))
	case audit.TypeToolInstalled, audit.TypeToolRemoved:
		activity := 1
		if r.Type == audit.TypeToolRemoved {
			activity = 2
		}
		return lifecycleClass, activity, object{"app": object{"name": text(r, "bundle"),
			"version": text(r, "version"), "vendor_name": text(r, "publisher")}}
	case audit.TypeDaemonStarted:
		return lifecycleClass, 3, object{"app": object{"name": "jaild",
			"version": text(r, "version"), "vendor_name": "jail"}}
	case audit.TypeDaemonStopped:
		return lifecycleClass, 4, object{"app": object{"name": "jaild", "vendor_name": "jail"}}
	}
	return baseEvent, otherActivity, nil
}

func ocsfFetch(r audit.Record) (class, int, object) {
	activity, ok := httpActivities[text(r, "method")]
	if !ok {
		activity = otherActivity
	}
	url := object{"scheme": text(r, "scheme"), "hostname": text(r, "host"), "path": text(r, "path"),
		"port": r.Int("port")}
	own := object{"http_request": object{"http_method": text(r, "method"), "url": url},
		"dst_endpoint": object{"hostname": text(r, "host"), "port": r.Int("port")}}
	if status := r.Int("status"); status != 0 {
		own["http_response"] = object{"code": status}
	}
	if in, out := r.Int("bytes_in"), r.Int("bytes_out"); in+out != 0 {
		own["traffic"] = object{"bytes_in": in, "bytes_out": out}
	}
	return httpActivity, activity, own
}

// ocsfFile returns the file object for a path as stored in the log.
func ocsfFile(name string) object {
	return object{"path": name, "name": path.Base(name), "type_id": 1}
}

func ocsfSeverity(r audit.Record) int {
	switch severity(r) {
	case sevError:
		return 4 // high
	case sevWarning:
		return 3 // medium
	case sevNotice:
		return 2 // low
	}
	return 1 // informational
}
