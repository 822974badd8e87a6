#!/usr/bin/env bash
# Runs the conversation scripts of tlsfuzzer (https://github.com/tlsfuzzer/tlsfuzzer) against Tidegate, over TLS 1.2
# and 1.3 on loopback, and prints the results as Markdown. Exits with 1 if a conversation fails for a reason that
# scripts/tlsfuzzer.py does not list for its script.
#
#   TLSFUZZER=DIR scripts/tlsfuzzer.sh               run all scripts; about ten minutes
#   TLSFUZZER=DIR scripts/tlsfuzzer.sh tls13-ccs     run the scripts whose names contain a word
#   ALL=1 TLSFUZZER=DIR scripts/tlsfuzzer.sh         run all conversations, about 44,000, instead of a selection
#
# DIR is a checkout of tlsfuzzer, which is not on PyPI. Its libraries are installed into target/peers/tlsfuzzer.
# BINARY (default: the debug build, which is made first) is the Tidegate to test.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=target/peers/tlsfuzzer
wanted=(tlslite-ng==0.9.0b2 ecdsa==0.19.2 kyber-py==1.2.0)

if [ ! -d "${TLSFUZZER:-}/tlsfuzzer" ]; then
  echo "tlsfuzzer.sh: set TLSFUZZER to a checkout of https://github.com/tlsfuzzer/tlsfuzzer" >&2
  exit 2
fi
if [ -z "${BINARY:-}" ]; then
  cargo build --quiet --package tidegate
  BINARY=target/debug/tidegate
fi
if [ ! -x "$environment/bin/python" ]; then
  python3 -m venv "$environment"
fi
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check "${wanted[@]}"

certificates=$(mktemp --directory)
trap 'rm -rf "$certificates"' EXIT
make_certificate() {
  local name=$1 usage=$2
  shift 2
  openssl req -x509 "$@" -nodes -days 2 -subj "/CN=localhost" -addext basicConstraints=critical,CA:FALSE \
    -addext subjectAltName=DNS:localhost -addext "extendedKeyUsage=$usage" \
    -keyout "$certificates/$name.key" -out "$certificates/$name.pem" 2>/dev/null
}
p256=(-newkey ec -pkeyopt ec_paramgen_curve:P-256)
make_certificate ecdsa serverAuth "${p256[@]}"
make_certificate rsa serverAuth -newkey rsa:2048
make_certificate client clientAuth -newkey rsa:2048
make_certificate client-ec clientAuth "${p256[@]}"
cat "$certificates/client.pem" "$certificates/client-ec.pem" >"$certificates/clients.pem"

"$environment/bin/python" scripts/tlsfuzzer.py "$(realpath "$TLSFUZZER")" "$(realpath "$BINARY")" "$certificates" "$@"
