# Users need `make run`; contributors need `make test`. The other targets are for development and releases.
.PHONY: run test lint fuzz soak leak compare c1000k figures build dist deb image peers
SHELL := /bin/bash
SEEDS ?= 5000
FIRST ?= 0
CONNECTS ?= 1000000
FUZZ_SECONDS ?= 60
WHAT ?= all
CONNECTIONS ?= 1200000

run:            ## build quickly (profile quick) and serve the embedded configuration on 127.0.0.1:8080
	cargo run --profile quick --no-default-features --package tidegate -- run

build:          ## build the fastest binary (profile release): target/release/tidegate
	cargo build --release --package tidegate

dist:           ## pack the release archive: target/dist/tidegate-VERSION-linux-ARCH.tar.gz
	scripts/dist.sh

deb:            ## pack a Debian package: target/dist/tidegate_VERSION_ARCH.deb
	scripts/deb.sh

image:          ## write a container image without a daemon: target/image/tidegate-VERSION-oci.tar
	scripts/image.sh

peers:          ## install the third-party programs that the tests run
	scripts/install-peers.sh

test:           ## all tests and the lints; installs the third-party programs that the tests run; CI runs this
	scripts/test.sh

lint:           ## formatting and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

soak:           ## simulate many seeds on all CPUs: make soak FIRST=1000000 SEEDS=20000
	TIDEGATE_FIRST_SEED=$(FIRST) TIDEGATE_SEEDS=$(SEEDS) cargo test --release --package tidegate-server --test simulation no_seed -- --nocapture

leak:           ## a million clients of a Lua application come and go in the simulation: make leak CONNECTS=50000 for fewer
	TIDEGATE_LEAK_CONNECTS=$(CONNECTS) cargo test --release --package tidegate-server --test simulation come_and_go -- --nocapture

fuzz:           ## run each fuzz target for FUZZ_SECONDS; installs cargo-fuzz, and the nightly toolchain if rustup is there
	scripts/fuzz.sh $(FUZZ_SECONDS)

compare: build  ## paired rounds against the installed servers and clients: make compare WHAT=proxy
	target/release/tidegate bench compare $(WHAT)

c1000k: build   ## 1.2 million WebSocket connections and 10 broadcasts: make c1000k CONNECTIONS=200000 for fewer
	CONNECTIONS=$(CONNECTIONS) scripts/c1000k.sh

figures:        ## rewrite the tables of figures in README.md from benches/results
	scripts/figures.py
