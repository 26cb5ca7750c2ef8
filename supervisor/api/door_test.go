package api

import "testing"

// No user takes all of a bound, and none together take what is root's.
func TestShares(t *testing.T) {
	s := newShares(160)
	fill := func(uid uint32) (n int, give []func()) {
		for {
			g := s.take(uid, 1)
			if g == nil {
				return n, give
			}
			n++
			give = append(give, g)
		}
	}
	first, give := fill(1)
	second, _ := fill(2)
	if first != 132 || second != 16 {
		t.Errorf("the first of two users may hold %d, and then the second %d, of 160", first,
			second)
	}
	for uid := range uint32(200) {
		if uid > 2 {
			fill(uid)
		}
	}
	if root, _ := fill(0); root != 10 {
		t.Errorf("for root are left %d", root)
	}
	for _, g := range give {
		g()
		g() // twice is once
	}
	if again, _ := fill(1); again == 0 || s.take(1, 1) != nil {
		t.Errorf("given back are %d, of which %d could be had again", first, again)
	}
	if s.taken > s.bound {
		t.Errorf("%d taken of %d", s.taken, s.bound)
	}
}
