#!/usr/bin/env bash
# What `make test` runs: all tests and the lints, with their results in target/test-logs.
# The third-party programs are installed while the tests compile, and the lints run at the lowest priority beside the
# tests, which wait for other programs most of the time. One after the other, they would take five minutes more.
set -uo pipefail
cd "$(dirname "$0")/.."
readonly LOGS=target/test-logs
mkdir -p $LOGS
rm -f $LOGS/*

cargo fmt --all --check || exit 1
scripts/install-peers.sh >$LOGS/peers.log 2>&1 &
peers=$!
trap 'kill $peers ${lints:-} 2>/dev/null' EXIT
cargo test --workspace --no-run || exit 1
wait $peers || { cat $LOGS/peers.log; exit 1; }

# Cargo locks the build folder until the first test program runs.
(
  until grep -qs ' Running ' $LOGS/workspace.log; do sleep 1; done
  exec nice -n 19 cargo clippy --workspace --all-targets --quiet -- -D warnings
) >$LOGS/lints.log 2>&1 &
lints=$!
# Both the total and the exit status of cargo count: a test program that crashes prints no result line.
cargo test --workspace --no-fail-fast 2>&1 | tee $LOGS/workspace.log
tests=$?
grep -q ' Running ' $LOGS/workspace.log || kill $lints
wait $lints
clean=$?
cat $LOGS/lints.log
cargo xtask test-summary $LOGS/workspace.log && [ $clean -eq 0 ] && exit $tests
[ $clean -eq 0 ] || echo "test.sh: the lints above found mistakes; see $LOGS/lints.log" >&2
exit 1
