#!/usr/bin/env bash
# Runs fuzz targets: fuzz.sh [SECONDS [TARGET...]]. Each runs for SECONDS (default 60); without TARGET all run.
# Inputs that reach new code are added to fuzz/corpus, which `make test` replays: commit them.
# An input that makes a target panic is written to fuzz/artifacts, and the script fails.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true

missing() {
  echo "fuzz.sh: $1 is missing: $2" >&2
  exit 1
}
command -v cargo >/dev/null || missing "cargo" "install Rust, see https://rustup.rs"
command -v c++ >/dev/null || missing "a C++ compiler (libFuzzer is built with it)" "apt-get install g++"
if ! command -v cargo-fuzz >/dev/null; then
  cargo install cargo-fuzz --locked || missing "cargo-fuzz" "cargo install cargo-fuzz --locked"
fi

# AddressSanitizer needs the nightly compiler. Without it the targets run without a sanitizer on the stable
# compiler: failed assertions still panic; only memory errors in the unsafe code of the reactor go unnoticed.
if cargo +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal; then
  fuzz=(cargo +nightly fuzz) options=()
else
  echo "fuzz.sh: no nightly toolchain (rustup toolchain install nightly): running without a sanitizer" >&2
  export RUSTC_BOOTSTRAP=1
  fuzz=(cargo fuzz) options=(--sanitizer none)
fi

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <("${fuzz[@]}" list)
fi
for target in "${targets[@]}"; do
  echo "== $target for $seconds s"
  found="fuzz/target/found/$target"
  mkdir -p "$found"
  "${fuzz[@]}" run "${options[@]}" "$target" "$found" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20
  "${fuzz[@]}" run "${options[@]}" "$target" "fuzz/corpus/$target" "$found" -- \
    -set_cover_merge=1 -use_counters=0 -max_len=4096
done
