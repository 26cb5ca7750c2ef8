// Package meaning says what policies mean: which layer gives or narrows each item, why a question
// is answered as it is and what would turn the answer, what a second policy can reach that a first
// cannot, whether a policy keeps what a file expects of it, and how exposed it leaves a host.
//
// It only reads policies, and is pure. What it says of two policies is exact and not a comparison
// of texts: the patterns of both are run through together until there is one name for each way in
// which they can match, and both policies are asked about each. See cells.go.
package meaning
