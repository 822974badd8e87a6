#!/usr/bin/env bash
# Builds the binary without debug information and packs target/dist/tidegate-VERSION-linux-ARCH.tar.gz.
# The archive contains the binary, the licenses, README.md and the pages that it links, docs/, apps/, the client library
# of push, manual pages, completion scripts and the example configuration tidegate.toml, which is the one of README.md.
# The script fails if the binary exceeds BYTES_MAX, or if a page of the archive links a file that the archive lacks.
set -euo pipefail
cd "$(dirname "$0")/.."
# The table of symbols, from which profiles take names, is 2 MB of it. The archive is half as large.
readonly BYTES_MAX=18000000

cargo build --profile dist --package tidegate
binary=target/dist/tidegate
bytes=$(stat --format=%s "$binary")
if [ "$bytes" -gt "$BYTES_MAX" ]; then
  echo "dist.sh: $binary has $bytes bytes, allowed are $BYTES_MAX" >&2
  exit 1
fi

name="$("$binary" --version | tr ' ' -)-linux-$(uname -m)"
folder="target/dist/$name"
rm -rf "$folder" "$folder.tar.gz"
mkdir -p "$folder"
cp "$binary" LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md THREAT_MODEL.md ARCHITECTURE.md CONTRIBUTING.md "$folder/"
cp -r docs apps "$folder/"
mkdir "$folder/web"
cp -r web/client "$folder/web/"
"$binary" man --to "$folder/share/man/man1"
# The paths and names below share/ are those from which the shells load completions.
complete() {
  mkdir -p "$(dirname "$folder/share/$2")"
  "$binary" completions "$1" >"$folder/share/$2"
}
complete bash bash-completion/completions/tidegate
complete zsh zsh/site-functions/_tidegate
complete fish fish/vendor_completions.d/tidegate.fish
# A link is a path, perhaps with an anchor; addresses contain a colon.
find "$folder" -name '*.md' | while read -r page; do
  { grep -oE '\]\([^)#: ]+[)#]' "$page" || true; } | sed 's/^](//; s/[)#]$//' | while read -r link; do
    if [ ! -e "$(dirname "$page")/$link" ]; then
      echo "dist.sh: $page links $link, which is not in the archive" >&2
      exit 1
    fi
  done
done
# The first TOML block after the heading.
awk '/^## Your first file/ { found = 1 } found && /^```$/ { exit } toml { print } found && /^```toml$/ { toml = 1 }' \
  README.md >"$folder/tidegate.toml"
"$folder/tidegate" check "$folder/tidegate.toml"

# Equal contents give an equal archive: fixed order, owner, and the time of the last commit.
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
tar --create --directory target/dist --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" \
  --file - "$name" | gzip -9n >"$folder.tar.gz"
echo "$folder.tar.gz: $(stat --format=%s "$folder.tar.gz") bytes; the binary: $bytes bytes"
