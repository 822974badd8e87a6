# Two commands matter: `make run` and `make test`. The rest is for those who change Tidegate.
.PHONY: run test lint fuzz soak compare figures build peers
SHELL := /bin/bash
LOGS := target/test-logs
SEEDS ?= 5000
FIRST ?= 0
FUZZ_SECONDS ?= 60
WHAT ?= all

run:            ## build and serve the embedded configuration on 127.0.0.1
	cargo run --release --package tidegate -- run

build:
	cargo build --release --package tidegate

peers:          ## install the foreign programs that the tests talk to
	scripts/install-peers.sh

test: peers     ## everything that must hold: lints, unit and property tests, simulation, sockets, foreign peers
	mkdir -p $(LOGS) && rm -f $(LOGS)/*
	$(MAKE) --no-print-directory lint
	@# The sum decides, and so does cargo: a test program that dies has no closing line to be summed.
	set -o pipefail; cargo test --workspace --no-fail-fast 2>&1 | tee $(LOGS)/workspace.log; ended=$$?; \
	cargo xtask test-summary $(LOGS)/workspace.log && exit $$ended

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

soak:           ## many simulated seeds on all CPUs: make soak FIRST=1000000 SEEDS=20000
	TIDEGATE_FIRST_SEED=$(FIRST) TIDEGATE_SEEDS=$(SEEDS) cargo test --release --package tidegate-server --test simulation no_seed -- --nocapture

fuzz:           ## each fuzz target for FUZZ_SECONDS; brings cargo-fuzz, and the nightly toolchain where rustup can
	scripts/fuzz.sh $(FUZZ_SECONDS)

compare: build  ## paired rounds against the peers that are installed: make compare WHAT=proxy
	target/release/tidegate bench compare $(WHAT)

figures:        ## the newest recorded runs as the table in README.md
	scripts/figures.py
