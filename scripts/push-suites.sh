#!/usr/bin/env bash
# Runs the test suites of Centrifugo's client libraries for JavaScript, Go and Python against push hubs of Tidegate, on
# loopback. Prints the tests that fail; docs/push.md names those that are expected to, and why. Exits with 1 if others do.
#
#   scripts/push-suites.sh                   all suites: about five minutes
#   scripts/push-suites.sh go python         some of them (js, go, python)
#
# BINARY (default: the debug build, which is made first) is the Tidegate to test. The suites are fetched into
# target/suites, unless FOLDER (default: that) has them already as js, go and python. Needs git, Node with npm, Go and
# Python.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath --canonicalize-missing "${FOLDER:-target/suites}")
work=$(mktemp --directory)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
if [ -z "${BINARY:-}" ]; then
  cargo build --quiet --package tidegate
  BINARY=target/debug/tidegate
fi
[ $# -gt 0 ] || set -- js go python
mkdir -p "$folder"

declare -A tags=([js]=5.7.1 [go]=v0.12.1 [python]=0.5.0)

# Copies a suite to the working folder, where its address and its secret are replaced.
prepare() {
  if [ ! -e "$folder/$1" ]; then
    git clone --quiet --depth 1 --branch "${tags[$1]}" "https://github.com/centrifugal/centrifuge-$1" "$folder/$1"
  fi
  cp -r "$folder/$1" "$work/$1"
  chmod -R u+w "$work/$1"
  /usr/bin/python3 scripts/centrifuge/readdress.py "$work/$1" "$address"
}

# Serves the hub that a suite expects. `address` is where.
serve() {
  [ -z "$server" ] || kill "$server"
  : >"$work/log"
  "$BINARY" run -c "scripts/centrifuge/$1.toml" 2>"$work/log" &
  server=$!
  address=
  for _ in {1..300}; do
    address=$(sed -n 's|^tidegate: listening on http://\([^/]*\)/.*|\1|p' "$work/log")
    [ -z "$address" ] || return 0
    sleep 0.1
  done
  cat "$work/log" >&2
  exit 1
}

# The names of the tests that fail, one a line. Map and shared-poll subscriptions do not exist here, and the timers of their tests
# would let other tests fail.
run_js() {
  (
    cd "$work/js"
    [ -e node_modules ] || npm install --silent --no-audit --no-fund --ignore-scripts >&2
    npx jest --ci --json --forceExit --outputFile=result.json \
      --testPathIgnorePatterns map shared_poll debounce bench --testNamePattern '^(?!map)' >/dev/null 2>&1 || true
    /usr/bin/python3 -c '
import json
result = json.load(open("result.json"))
for file in result["testResults"]:
    if not file["assertionResults"]:
        print(file["name"].split("/")[-1])
    for test in file["assertionResults"]:
        if test["status"] == "failed":
            print(test["fullName"])
print(result["numPassedTests"], "passed", file=__import__("sys").stderr)'
  )
}

run_go() {
  (
    cd "$work/go"
    go test -v ./... >result.txt 2>&1 || true
    echo "$(grep --count '^--- PASS' result.txt || true) passed" >&2
    grep --only-matching --perl-regexp '^\s*--- FAIL: \K\S+' result.txt || grep '^FAIL.*build failed' result.txt || true
  )
}

# Each test has a process of its own: one whose callback fails never ends.
run_python() {
  (
    cd "$work/python"
    /usr/bin/env python3 -m venv venv
    venv/bin/python -m pip install --quiet --disable-pip-version-check .
    passed=0
    for test in $(grep --no-filename --only-matching --perl-regexp '^class \K\w+(?=\(unittest)' tests/test_client.py); do
      if timeout 60 venv/bin/python -m unittest "tests.test_client.$test" >>result.txt 2>&1; then
        passed=$((passed + 1))
      else
        echo "$test"
      fi
    done
    echo "$passed passed" >&2
  )
}

status=0
for suite; do
  serve "$suite"
  prepare "$suite"
  echo "$suite ${tags[$suite]}" >&2
  failed=$("run_$suite" | sort --unique)
  expected=$(sort --unique "scripts/centrifuge/$suite.expected")
  comm -23 <(echo "$failed") <(echo "$expected") | sed '/^$/d; s/^/FAILED: /' | tee "$work/unexpected"
  comm -12 <(echo "$failed") <(echo "$expected") | sed '/^$/d; s/^/fails as expected: /'
  comm -13 <(echo "$failed") <(echo "$expected") | sed '/^$/d; s/^/passes, though a failure is expected: /'
  [ ! -s "$work/unexpected" ] || status=1
done
exit $status
