package export

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

type object = map[string]any

// otlp is an ExportLogsServiceRequest in the JSON of OTLP (opentelemetry.io/docs/specs/otlp).
func otlp(h Host, batch []audit.Record) []byte {
	records := make([]object, len(batch))
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	for i, r := range batch {
		number, name := otlpSeverity(r)
		var attributes []object
		names, values := common(r)
		for k, name := range names {
			attributes = append(attributes, otlpAttribute("jail."+name, values[k]))
		}
		for _, f := range r.Fields {
			var v any
			dec := json.NewDecoder(strings.NewReader(string(f.Value)))
			dec.UseNumber()
			if dec.Decode(&v) == nil {
				attributes = append(attributes, otlpAttribute("jail.field."+f.Name, v))
			}
		}
		attributes = append(attributes, otlpAttribute("log.record.original", string(r.Line)))
		records[i] = object{"timeUnixNano": strconv.FormatInt(r.Time.UnixNano(), 10), "observedTimeUnixNano": now, "severityNumber": number,
			"severityText": name, "eventName": "jail." + string(r.Type), "body": otlpValue(summary(r)), "attributes": attributes}
	}
	resource := []object{otlpAttribute("service.name", "jail"), otlpAttribute("service.version", h.Version), otlpAttribute("host.name", h.Name)}
	return compact(object{"resourceLogs": []object{{"resource": object{"attributes": resource},
		"scopeLogs": []object{{"scope": object{"name": "jail.audit", "version": h.Version}, "logRecords": records}}}}})
}

// otlpSeverity is a severity by the numbers of the data model of OpenTelemetry.
func otlpSeverity(r audit.Record) (int, string) {
	switch severity(r) {
	case sevError:
		return 17, "ERROR"
	case sevWarning:
		return 13, "WARN"
	case sevNotice:
		return 10, "INFO2"
	}
	return 9, "INFO"
}

func otlpAttribute(key string, v any) object { return object{"key": key, "value": otlpValue(v)} }

// otlpValue is an AnyValue. 64-bit integers are texts, as JSON of protocol buffers has them.
func otlpValue(v any) object {
	switch v := v.(type) {
	case string:
		return object{"stringValue": v}
	case bool:
		return object{"boolValue": v}
	case uint64:
		return object{"intValue": strconv.FormatUint(v, 10)}
	case json.Number:
		return object{"intValue": v.String()}
	case []any:
		values := make([]object, len(v))
		for i := range v {
			values[i] = otlpValue(v[i])
		}
		return object{"arrayValue": object{"values": values}}
	case map[string]any:
		var values []object
		for _, name := range sortedKeys(v) {
			values = append(values, otlpAttribute(name, v[name]))
		}
		return object{"kvlistValue": object{"values": values}}
	}
	return object{}
}
