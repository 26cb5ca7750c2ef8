package meaning

import (
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

func (d *differ) limits() {
	one := func(key string, unit policy.Unit, x, y int64) {
		if x != y {
			d.add(way(y > x), "limit", fmt.Sprintf("use %s of %s, and not %s", unit.Format(y),
				strings.TrimPrefix(key, "limits."), unit.Format(x)), key, nil)
		}
	}
	for _, name := range policy.LimitNames() {
		x, unit, _ := d.a.Limits.Get(name)
		y, _, _ := d.b.Limits.Get(name)
		one("limits."+name, unit, x, y)
	}
	if len(d.a.Fetch.Allow) == 0 || len(d.b.Fetch.Allow) == 0 {
		return
	}
	for _, name := range policy.FetchLimitNames() {
		x, unit, _ := d.a.Fetch.Limits.Get(name)
		y, _, _ := d.b.Fetch.Limits.Get(name)
		one("fetch.limits."+name, unit, x, y)
	}
	one("fetch.limits.rate", policy.Count, unbounded(d.a.Fetch.Rate), unbounded(d.b.Fetch.Rate))
	if x, y := d.a.Fetch.Mode, d.b.Fetch.Mode; x != y {
		d.add(way(y > x), "connect", "send what no rule grants, and have it only recorded",
			fmt.Sprintf("fetch.mode = %q", either(y > x, y, x)), nil)
	}
}

func unbounded(n int64) int64 { return either(n <= 0, policy.Unlimited, n) }
