module github.com/jail-sandbox/jail/supervisor/fetch/testdata/differential

go 1.26.0

require (
	code.dny.dev/ssrf v0.3.0
	github.com/doyensec/safeurl v0.2.2
)
