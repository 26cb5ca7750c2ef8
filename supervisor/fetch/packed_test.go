package fetch

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	anyText = rapid.StringN(0, 40, -1)
	anyAddr = rapid.Custom(func(t *rapid.T) netip.Addr {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")
		switch rapid.IntRange(0, 3).Draw(t, "family") {
		case 0:
			return netip.AddrFrom4([4]byte(b[:4]))
		case 1:
			return netip.AddrFrom16([16]byte(b)).WithZone("eth0")
		case 2:
			return netip.AddrFrom16(netip.AddrFrom4([4]byte(b[:4])).As16())
		}
		return netip.AddrFrom16([16]byte(b))
	})
)

func anyTextOrBytes(t *rapid.T, name string) string {
	if rapid.Bool().Draw(t, name+" is text") {
		return anyText.Draw(t, name)
	}
	return string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, name))
}

// fill sets every field of a struct, so that a field that is forgotten in the packing is found.
func fill(t *rapid.T, v reflect.Value) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch value := f.Interface().(type) {
		case string:
			f.SetString(anyTextOrBytes(t, name))
		case bool:
			f.SetBool(rapid.Bool().Draw(t, name))
		case uint16:
			f.SetUint(uint64(rapid.Uint16().Draw(t, name)))
		case uint64:
			f.SetUint(rapid.Uint64().Draw(t, name))
		case int, int64, time.Duration:
			f.SetInt(rapid.Int64().Draw(t, name))
		case What:
			fill(t, f)
		case []netip.Addr:
			f.Set(reflect.ValueOf(rapid.SliceOfN(anyAddr, 1, 3).Draw(t, name)))
		default:
			t.Fatalf("%s is a %T, which is not packed", name, value)
		}
	}
}

// byJSON returns what arrives of a message as JSON.
func byJSON[T any](t *rapid.T, v T) (out T) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPacked: what arrives packed is what would arrive as JSON, to the byte, so that records do not
// depend on how the two processes speak.
func TestPacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var i Intent
		var o Outcome
		var a answer
		fill(t, reflect.ValueOf(&i).Elem())
		fill(t, reflect.ValueOf(&o).Elem())
		fill(t, reflect.ValueOf(&a).Elem())
		for _, c := range []struct {
			body []byte
			want fromProxy
		}{{pack(nil, packedIntent, &i), fromProxy{Intent: &i}},
			{pack(nil, packedOutcome, &o), fromProxy{Outcome: &o}}} {
			var got fromProxy
			if err := got.unpack(c.body[4], c.body[5:]); err != nil {
				t.Fatal(err)
			}
			if want := byJSON(t, c.want); !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
		body := pack(nil, packedAnswer, &a)
		var got answer
		if err := got.unpack(body[4], body[5:]); err != nil || got != byJSON(t, a) {
			t.Fatalf("%+v, want %+v, %v", got, a, err)
		}
	})
}

// TestPackedHostile: bytes that are no message are an error, and nothing worse. No message is read
// of one that is cut or longer.
func TestPackedHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var i Intent
		fill(t, reflect.ValueOf(&i).Elem())
		body := pack(nil, packedIntent, &i)
		cut := rapid.IntRange(5, len(body)-1).Draw(t, "cut")
		for _, b := range [][]byte{body[5:cut], append(body[5:len(body):len(body)], 0)} {
			var m fromProxy
			if err := m.unpack(packedIntent, b); err == nil {
				t.Fatalf("%d of %d bytes are read: %+v", len(b), len(body)-5, m.Intent)
			}
		}
		raw := rapid.SliceOf(rapid.Byte()).Draw(t, "raw")
		for kind := range byte(5) {
			var m fromProxy
			var a answer
			_, _ = m.unpack(kind, raw), a.unpack(kind, raw)
		}
	})
}
