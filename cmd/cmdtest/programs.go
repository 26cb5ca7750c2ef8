package cmdtest

var (
	DecidesModule  = Build("decides.wasm", "./testdata/decides", "GOOS=wasip1", "GOARCH=wasm")
	DecidesProgram = Build("decides", "./testdata/decides")
)

// An Asked is a question of a batch, and what the policy says of it.
type Asked struct {
	Op, What string
	Want     bool
}

var InjectProgram = Build("inject", "./testdata/inject")
