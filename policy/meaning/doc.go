// Package meaning analyses policies: which layer grants or narrows each item, why a question is
// answered as it is and what would change the answer, how two policies differ, whether a policy
// meets the expectations in a file, and how exposed it leaves a host.
//
// It only reads policies, and is pure. Policies are compared exactly and not as texts: it computes
// one name for each combination of patterns that can match, and asks both policies about each name.
// See cells.go.
package meaning
