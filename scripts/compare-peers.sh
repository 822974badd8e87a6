#!/usr/bin/env bash
# Installs the peers of comparisons that no distribution packages into target/peers. Tests do not need them.
#   scripts/compare-peers.sh            all of them
#   scripts/compare-peers.sh bun        Bun, from npm
#   scripts/compare-peers.sh rust       the echo servers in benches/compare/echo-rust
#   scripts/compare-peers.sh go         Centrifugo, from the Go module proxy; needs Go 1.26
#   scripts/compare-peers.sh java       the servers in benches/compare/c1000k-java; needs a JDK 17 and Maven
set -euo pipefail
cd "$(dirname "$0")/.."
readonly BUN=1.4.5 CENTRIFUGO=6.9.1

install_bun() {
  local folder=target/peers/bun package
  case $(uname -m) in
    x86_64) package=@oven/bun-linux-x64 ;;
    aarch64) package=@oven/bun-linux-aarch64 ;;
    *) echo "compare-peers.sh: Bun has no program for $(uname -m)" >&2; exit 2 ;;
  esac
  mkdir -p "$folder"
  npm install --silent --no-audit --no-fund --no-save --ignore-scripts --prefix "$folder" "$package@$BUN"
  ln -sf "../bun/node_modules/$package/bin/bun" target/peers/compare/bun
}

build_rust() {
  cargo build --quiet --release --locked --manifest-path benches/compare/echo-rust/Cargo.toml --target-dir target/peers/echo-rust
  for program in fastwebsockets-echo actix-ws-echo; do
    ln -sf "../echo-rust/release/$program" target/peers/compare/
  done
}

build_go() {
  GOBIN=$PWD/target/peers/compare go install "github.com/centrifugal/centrifugo/v6@v$CENTRIFUGO"
}

build_java() {
  mvn -q -B -f benches/compare/c1000k-java/pom.xml compile dependency:copy-dependencies
}

mkdir -p target/peers/compare
for part in "${@:-bun rust go java}"; do
  for one in $part; do
    case $one in
      bun) install_bun ;;
      rust) build_rust ;;
      go) build_go ;;
      java) build_java ;;
      *) echo "usage: scripts/compare-peers.sh [bun] [rust] [go] [java]" >&2; exit 2 ;;
    esac
  done
done
