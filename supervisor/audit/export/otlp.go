package export

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

type object = map[string]any

// otlp returns an ExportLogsServiceRequest in OTLP's JSON (opentelemetry.io/docs/specs/otlp). It
// uses LogsData, which is the same message, since the package of the request links gRPC.
func otlp(h Host, batch []audit.Record) []byte {
	records := make([]*logs.LogRecord, len(batch))
	now := uint64(time.Now().UnixNano())
	for i, r := range batch {
		records[i] = otlpRecord(r)
		records[i].ObservedTimeUnixNano = now
	}
	data := &logs.LogsData{ResourceLogs: []*logs.ResourceLogs{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			otlpAttribute("service.name", "jail"), otlpAttribute("service.version", h.Version),
			otlpAttribute("host.name", h.Name)}},
		ScopeLogs: []*logs.ScopeLogs{{
			Scope:      &common.InstrumentationScope{Name: "jail.audit", Version: validText(h.Version)},
			LogRecords: records,
		}},
	}}}
	text, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(data)
	if err != nil {
		// All texts in it are valid UTF-8.
		panic("export: bug: " + err.Error())
	}
	// protojson inserts spaces that differ from build to build.
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		panic("export: bug: " + err.Error())
	}
	return audit.EscapeJSON(b.Bytes())
}

func otlpRecord(r audit.Record) *logs.LogRecord {
	var attributes []*common.KeyValue
	names, values := commonFields(r)
	for i, name := range names {
		attributes = append(attributes, otlpAttribute("jail."+name, values[i]))
	}
	for _, f := range r.Fields {
		var v any
		dec := json.NewDecoder(bytes.NewReader(f.Value))
		dec.UseNumber()
		if dec.Decode(&v) == nil {
			attributes = append(attributes, otlpAttribute("jail.field."+f.Name, v))
		}
	}
	number := otlpSeverity(r)
	return &logs.LogRecord{
		TimeUnixNano:   uint64(r.Time.UnixNano()),
		SeverityNumber: number,
		SeverityText:   strings.TrimPrefix(number.String(), "SEVERITY_NUMBER_"),
		EventName:      validText("jail." + string(r.Type)),
		Body:           otlpValue(summary(r)),
		Attributes:     append(attributes, otlpAttribute("log.record.original", string(r.Line))),
	}
}

// otlpSeverity returns the severity of a record as an OpenTelemetry number.
func otlpSeverity(r audit.Record) logs.SeverityNumber {
	switch severity(r) {
	case sevError:
		return logs.SeverityNumber_SEVERITY_NUMBER_ERROR
	case sevWarning:
		return logs.SeverityNumber_SEVERITY_NUMBER_WARN
	case sevNotice:
		return logs.SeverityNumber_SEVERITY_NUMBER_INFO2
	}
	return logs.SeverityNumber_SEVERITY_NUMBER_INFO
}

// validText returns s with invalid UTF-8 replaced, as protocol buffers require.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func otlpAttribute(key string, v any) *common.KeyValue {
	return &common.KeyValue{Key: validText(key), Value: otlpValue(v)}
}

// otlpValue converts a value decoded from JSON, or a field of commonFields. It returns an empty
// value for null.
func otlpValue(v any) *common.AnyValue {
	switch v := v.(type) {
	case string:
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: validText(v)}}
	case bool:
		return &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: v}}
	case uint64:
		return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(v)}}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}}
		}
		return otlpValue(v.String())
	case []any:
		list := &common.ArrayValue{}
		for _, e := range v {
			list.Values = append(list.Values, otlpValue(e))
		}
		return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}
	case map[string]any:
		list := &common.KeyValueList{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			list.Values = append(list.Values, otlpAttribute(name, v[name]))
		}
		return &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: list}}
	}
	return &common.AnyValue{}
}
