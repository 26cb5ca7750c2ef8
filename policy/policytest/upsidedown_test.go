package policytest_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy/policytest"
)

// upsideDown is a memory limit whose meet is the larger one: each layer can widen it.
type upsideDown int64

func (a upsideDown) Meet(b upsideDown) upsideDown { return max(a, b) }
func (a upsideDown) LessEq(b upsideDown) bool     { return a >= b }
func (a upsideDown) Normal() upsideDown           { return a }
func (a upsideDown) String() string               { return fmt.Sprint(int64(a)) }

// TestUpsideDown shows why there is a table of meanings: the laws hold upside down.
func TestUpsideDown(t *testing.T) {
	gen := rapid.Map(rapid.Int64Range(0, 100), func(n int64) upsideDown { return upsideDown(n) })
	policytest.Laws(t, gen, upsideDown(math.MaxInt64), upsideDown(0))

	faults := policytest.Meaning[upsideDown]{Name: "less memory", Less: 1, More: 2}.Faults()
	if len(faults) == 0 {
		t.Fatal("the table of meanings takes an upside-down lattice for an upright one")
	}
	for _, f := range faults {
		t.Log(f)
	}
}

// forgetful keeps only its first operand: the least a law must catch.
type forgetful int64

func (a forgetful) Meet(forgetful) forgetful { return a }
func (a forgetful) LessEq(b forgetful) bool  { return a <= b }
func (a forgetful) Normal() forgetful        { return a }
func (a forgetful) String() string           { return fmt.Sprint(int64(a)) }

func TestApartMeanings(t *testing.T) {
	m := policytest.Meaning[forgetful]{Less: 1, More: 2, Apart: true, Both: 0}
	if got := len(m.Faults()); got != 3 {
		t.Errorf("a meet that keeps one operand has %d faults, want 3: %v", got, m.Faults())
	}
}
