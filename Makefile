# make demo      installs what is missing, builds what it shows, and shows the main job on a real directory
# make test      installs what is missing, builds, and runs the whole suite
# make bundles   builds all tools that jail ships; make bundles BUNDLES="core-utils js" those
#
# They need Go and git, and root: jails are made of things that only root may make.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# The toolchain of go.mod, whatever the environment says: net/http before 1.26.9 has a known hole (CVE-2026-94439).
export GOTOOLCHAIN := go$(shell sed -n 's/^go //p' go.mod)
export GOFLAGS := -buildvcs=false

PREFIX  ?= /usr/local
DESTDIR ?=
BIN     := bin
TAGS    := seccomp,runc_nocriu,netgo,osusergo
LDFLAGS := -s -w
STATIC  := $(LDFLAGS) -linkmode external -extldflags "-static"

# The bundles to build: all, unless some are named (runners/tools/build.sh has the names).
BUNDLES ?=
STEP    := @sh .ci/step

.PHONY: build programs runsc compare-programs modules compile bundles deps test check bench day install install-docs dist deb demo clean fuzz league vm-test size clients-test

build: programs bundles

# Go's own cache says what is up to date.
programs: deps modules
	@mkdir -p $(BIN)
	$(STEP) programs "about 60 s on two processors, some where little has changed" $(MAKE) --no-print-directory compile

modules:
	$(STEP) modules "what the network takes, nothing where they are there" sh -c 'CGO_ENABLED=1 go list -deps -tags $(TAGS),agents ./cmd/jail ./cmd/jaild ./cmd/jail-agentd ./cmd/jail-init ./cmd/jail-shim ./cmd/jail-oci >/dev/null'

# Go's compilers and linkers take a quarter less processor time where they collect garbage less often.
compile bundles: export GOGC := 400

compile:
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/jaild ./cmd/jail-init ./cmd/jail-agentd
	CGO_ENABLED=0 go build -trimpath -tags agents -ldflags '$(LDFLAGS)' -o $(BIN)/jail-init-agent ./cmd/jail-init
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/jail-full ./cmd/jail
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/jail ./cmd/jail/front
	CGO_ENABLED=1 go build -trimpath -tags $(TAGS) -ldflags '$(STATIC)' -o $(BIN)/ ./cmd/jail-shim ./cmd/jail-oci

# The runtime of the outer layer runsc (docs/outer.md), at the version that cmd/dev/runsc pins. The version is for reading; a record has the digest.
runsc:
	@mkdir -p $(BIN)
	$(STEP) runsc "about 2 min on two processors, and what the network takes" sh -c 'cd cmd/dev/runsc && version=$$(go list -m -f "{{.Version}}" gvisor.dev/gvisor) && CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS) -X gvisor.dev/gvisor/runsc/version.version=$$version" -o $(abspath $(BIN))/runsc gvisor.dev/gvisor/runsc'

# A release is made with JAIL_RELEASE_KEY, the file of a key of the official ring: docs/tools.md.
bundles: deps
	$(STEP) bundles "about 4 min on two processors where none is there" sh runners/tools/build.sh $(BIN)/bundles $(BUNDLES)
	@[ -z "$(JAIL_RELEASE_KEY)" ] || for b in $(BIN)/bundles/*/; do go run ./cmd/jail tool sign --key "$(JAIL_RELEASE_KEY)" "$$b"; done

deps:
	@sh .ci/deps

test: build
	@sh .ci/deps test
	$(STEP) test "about 12 min on two processors" sh .ci/test $(TAGS)

# What CI checks: format, vet, linters, nothing left over from generating or tidying, tests.
check: build
	@sh .ci/deps test
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go mod tidy -diff
	go vet -tags $(TAGS) ./...
	go tool staticcheck -tags $(TAGS) ./...
	sh .ci/test $(TAGS) -vet=off
	@git diff --exit-code

bench: build
	@sh .ci/deps bench
	go run ./cmd/dev/bench -bin $(BIN)

# A recorded day of a coding agent on four repositories, in a session and outside: docs/sessions.md. DAY="-only c -passes 1" asks for less.
day: programs
	@sh .ci/deps day
	go run ./cmd/dev/day -bin $(BIN) $(DAY)

# The same attacks in jail and in the sandboxes that people compare it with: docs/league.md.
league: build
	@sh .ci/deps league
	@sh .ci/league $(BIN)

# Real coding agents from the npm registry, in the versions of the lock file, against a model server of the test's own (docs/agents), and the official inspector
# and conformance tests of MCP (docs/mcp.md).
CLIENTS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/jail/clients

clients-test: build
	@sh .ci/deps clients
	@mkdir -p $(CLIENTS)
	cp cmd/jail/agents/testdata/clients/*.json $(CLIENTS)/
	$(STEP) clients "about 1 GB from the registry where they are not there" npm ci --prefix $(CLIENTS) --no-audit --no-fund
	JAIL_CLIENTS=$(CLIENTS)/node_modules/.bin go test -timeout 30m -tags $(TAGS),clients -run 'TestClients|TestAgentInside' ./cmd/jail/agents ./cmd/jail/mcp ./cmd/fetch

# The suite on other kernels, under systemd and control groups v2, in emulated machines: docs/vm.md. VMTEST="-kernels 6.12 -packages jail/launch" asks for less.
vm-test: deb
	@sh .ci/deps vm
	go run ./cmd/dev/vmtest $(or $(VMTEST),-o docs/vm.md)

# Everyday programs of the host, run plainly and in a jail: what differs (docs/native.md). Debian's packages of those that are missing are installed first, about 2 GB. PROGRAMS="-run git" asks for less, and PROGRAMS="-outer runsc" for jails inside an outer layer.
compare-programs: build
	@missing=$$(go run ./cmd/dev/programs -packages); [ -z "$$missing" ] || sh .ci/deps packages $$missing
	go run ./cmd/dev/programs -bin $(BIN) $(PROGRAMS)

fuzz:
	@for p in $$(grep -rl 'func Fuzz' --include=*_test.go . | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -hoE 'func Fuzz[A-Za-z0-9]+' $$p/*_test.go | sed 's/func //'); do \
	    go test -tags $(TAGS) -run '^$$' -fuzz "^$$f\$$" -fuzztime $(or $(FUZZTIME),30s) $$p; done; done

# What the demo shows is of core-utils alone.
demo: programs
	$(STEP) core-utils "about 20 s on two processors" sh runners/tools/build.sh $(BIN)/bundles core-utils
	@mkdir -p $(BIN)/demo
	@for p in probe socket; do GOOS=wasip1 GOARCH=wasm go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/demo/$$p.wasm ./cmd/testdata/$$p; done
	$(STEP) demo "about 10 s" sh .ci/demo $(BIN)

# Everything that belongs on a host. With DESTDIR it makes the tree of a package.
install: build install-docs
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin libexec/jail share/jail/profiles lib/systemd/system lib/systemd/user lib/sysusers.d lib/tmpfiles.d \
		share/man/man1 share/man/man5 share/man/man8 share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d)
	install -m 0755 $(BIN)/jail $(BIN)/jaild $(BIN)/jail-agentd $(BIN)/jail-oci $(DESTDIR)$(PREFIX)/bin/
	install -m 0755 $(BIN)/jail-full $(BIN)/jail-shim $(BIN)/jail-init $(BIN)/jail-init-agent $(DESTDIR)$(PREFIX)/libexec/jail/
	cp -R $(BIN)/bundles $(DESTDIR)$(PREFIX)/share/jail/
	install -m 0644 profiles/*.toml profiles/*.expect $(DESTDIR)$(PREFIX)/share/jail/profiles/
	install -m 0644 docs/policy.schema.json supervisor/api/openapi.json $(DESTDIR)$(PREFIX)/share/jail/
	for unit in jaild.service jaild.socket jail-journal.service; do sed 's#@bindir@#$(PREFIX)/bin#' .packaging/systemd/$$unit > $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit; done
	for unit in jail-agentd.service jail-agentd.socket; do sed 's#@bindir@#$(PREFIX)/bin#' .packaging/systemd/$$unit > $(DESTDIR)$(PREFIX)/lib/systemd/user/$$unit; done
	install -m 0644 .packaging/systemd/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/jail.conf
	install -m 0644 .packaging/systemd/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/jail.conf
	for page in docs/man/*; do install -m 0644 $$page $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/; done
	$(BIN)/jail completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/jail
	$(BIN)/jail completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_jail
	$(BIN)/jail completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/jail.fish

# The pages, and the files that they link to, are laid out as in the tree, so that each link holds.
DOCS = LICENSE $(wildcard *.md docs/*.md docs/*.json docs/*.py docs/*/*.md docs/*/*.png docs/agents/*/* profiles/*.toml jail/testdata/plan-*.json) \
	$(filter-out %_test.go,$(wildcard supervisor/client/*.go)) supervisor/audit/doc.go runners/tools/DIFFERENCES.md .packaging/Containerfile

install-docs:
	for page in $(DOCS); do install -D -m 0644 $$page $(DESTDIR)$(PREFIX)/share/doc/jail/$$page; done

# A Debian package, an archive, checksums and a bill of materials, in bin/dist. Made twice from one commit they are the same bytes: docs/operations.md.
dist: build
	@sh .packaging/dist $(BIN)

deb: dist

clean:
	rm -rf $(BIN)

# Lines of Go that users run, without tests, developers' programs and the sources of bundles; and how many lines of all Go are over 110 columns.
size:
	@git ls-files '*.go' | grep -vE '_test\.go$$|/testdata/|^cmd/dev/|^runners/tools/|test/' | xargs cat | wc -l
	@git ls-files '*.go' | grep -v /testdata/ | xargs expand -t4 | awk 'length > 110 { n++ } END { print n " of " NR " lines are over 110 columns" }'
