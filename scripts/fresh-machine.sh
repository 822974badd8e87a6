#!/usr/bin/env bash
# Runs the two commands of README.md, `make run` and `make test`, on a fresh minimal Debian: the minbase of
# debootstrap with build-essential, git, curl and Rust, and nothing else. Needs root, debootstrap and network.
#
#   scripts/fresh-machine.sh             make the root if it is missing, then run both commands
#   scripts/fresh-machine.sh run|test    run one of them
#   scripts/fresh-machine.sh shell       open a shell in the root
#   scripts/fresh-machine.sh clean       remove the root
#
# The commit that is checked out is cloned into the root; changes that are not committed are not tested. Packages
# that a run installs stay in the root: begin with `clean` to see whether the tests install all that they need.
# ROOT (default target/fresh-machine) is the folder of the root, SUITE (default bookworm) the release of Debian,
# JOBS (default: all CPUs) the number of compilers that run at once. Nothing is built there twice, so builds keep
# no incremental state, which would double the disk space.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(realpath -m "${ROOT:-target/fresh-machine}")
suite=${SUITE:-bookworm}
jobs=${JOBS:-$(nproc)}
# The toolchain that is used here stands for the one that rustup installs.
toolchain=$(rustc --print sysroot)
# Exists once the root is complete. A folder without it is neither used nor removed.
mark=$root/etc/tidegate-fresh-machine
log=$root.log
readonly READY_MAX_SECONDS=900

fail() {
  echo "fresh-machine.sh: $*" >&2
  exit 2
}

# Runs a command in the root, in its own namespaces: its mounts and processes end with it.
inside() {
  # The user's shell expands nothing here: the script is that of the inner shell.
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child -- bash -c '
    root=$1; jobs=$2; toolchain=$3; shift 3
    # A mount of its own: programs that make mounts, such as tests, need one as their "/".
    mount --rbind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -o bind,ro "$toolchain" "$root/usr/local/rust"
    # This shell stays the first process of the namespace: another one could not be ended by a signal.
    chroot "$root" /usr/bin/env -i HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 \
      CARGO_BUILD_JOBS="$jobs" CARGO_INCREMENTAL=0 \
      PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
    exit "$?"
  ' inside "$root" "$jobs" "$toolchain" "$@"
}

make_root() {
  [ ! -e "$mark" ] || return 0
  [ ! -e "$root" ] || [ -z "$(ls -A "$root")" ] || fail "$root exists and is not a complete root; remove it or set ROOT"
  command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
  local packages=build-essential,git,curl,ca-certificates
  mkdir -p "$root"
  debootstrap --variant=minbase --include="$packages" "$suite" "$root" >"$log" 2>&1 || { tail -20 "$log" >&2; exit 1; }
  # Security updates, and the resolver and authorities of this host, as on a machine that its owner set up.
  echo "deb http://deb.debian.org/debian-security $suite-security main" >"$root/etc/apt/sources.list.d/security.list"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  mkdir -p "$root/dev/shm" "$root/usr/local/rust"
  # debootstrap may not be allowed to make device nodes.
  for device in null zero full random urandom tty; do
    [ -c "$root/dev/$device" ] || cp -a "/dev/$device" "$root/dev/$device"
  done
  git rev-parse HEAD >"$mark"
}

clone() {
  make_root
  [ -z "$(git status --porcelain)" ] || echo "fresh-machine.sh: changes that are not committed are left out" >&2
  rm -rf "$root/root/tidegate"
  git clone -q . "$root/root/tidegate"
  echo "fresh-machine.sh: commit $(git rev-parse --short HEAD), $suite, $jobs jobs"
}

# The first minute of a user: build, serve, one page, stop.
try_run() {
  # shellcheck disable=SC2016
  inside bash -c '
    cd /root/tidegate
    make run >/tmp/run.log 2>&1 &
    while [ "$SECONDS" -lt '"$READY_MAX_SECONDS"' ]; do
      url=$(sed -n "s/^tidegate: listening on \(http:[^ ]*\).*/\1/p" /tmp/run.log | head -1)
      if [ -n "$url" ] && curl -fsS -o /tmp/page "$url"; then
        echo "make run: $url answers after $SECONDS s; the page has $(wc -c </tmp/page) bytes"
        # Other programs of this machine lengthen the wall time, but hardly the CPU time.
        kill -TERM $!
        wait $!
        times >/tmp/times
        echo "make run: CPU time (user, system): $(tail -1 /tmp/times)"
        exit 0
      fi
      kill -0 $! 2>/dev/null || break
      sleep 1
    done
    tail -20 /tmp/run.log
    exit 1
  '
}

try_test() {
  inside bash -c 'cd /root/tidegate && make --no-print-directory test'
}

[ "$(id -u)" -eq 0 ] || fail "must run as root, for debootstrap and chroot"
mkdir -p "$(dirname "$root")"
exec 9>"$root.lock"
flock --nonblock 9 || fail "another run uses $root"
case "${1:-}" in
  clean)
    [ -e "$mark" ] || [ ! -e "$root" ] || fail "$root is not a complete root of this script; remove it yourself"
    rm -rf --one-file-system "$root" "$log" "$root.lock"
    ;;
  shell) make_root; inside bash ;;
  run) clone; try_run ;;
  test) clone; try_test ;;
  "") clone; try_run; try_test ;;
  *) echo "usage: fresh-machine.sh [run|test|shell|clean]" >&2; exit 2 ;;
esac
