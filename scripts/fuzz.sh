#!/usr/bin/env bash
# Runs every fuzz target for the given seconds. Found inputs go to fuzz/corpus and are replayed by `make test`.
set -euo pipefail
seconds=${1:-60}
cd "$(dirname "$0")/.."
command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked
for target in $(cd fuzz && cargo +nightly fuzz list); do
  echo "== $target for $seconds s"
  cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048
done
