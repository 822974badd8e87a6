#!/usr/bin/env bash
# Packs a Debian package: scripts/deb.sh [BINARY [FOLDER]]; without a binary, that of `make dist`, which it builds.
# Needs dpkg. Prints the path of the package. COMPRESSION is that of dpkg-deb -Z, MAINTAINER a name and
# address.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${2:-target/dist}
mkdir -p "$out"
out=$(realpath "$out")
if [ $# -ge 1 ]; then
  binary=$1
else
  scripts/dist.sh >&2
  binary=target/dist/tidegate
fi
version=$("$binary" --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
# Equal contents give an equal package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 0755 "$root"

place() { # MODE SOURCE TARGET
  install -D --mode="$1" "$2" "$root/$3"
}
place 0755 "$binary" usr/bin/tidegate
place 0644 packaging/tidegate.service usr/lib/systemd/system/tidegate.service
place 0644 packaging/tidegate.sysusers usr/lib/sysusers.d/tidegate.conf
place 0644 packaging/tidegate.tmpfiles usr/lib/tmpfiles.d/tidegate.conf
place 0644 packaging/tidegate.toml etc/tidegate/tidegate.toml
place 0644 packaging/tidegate.logrotate etc/logrotate.d/tidegate
place 0644 packaging/debian/copyright usr/share/doc/tidegate/copyright
place 0644 packaging/debian/lintian-overrides usr/share/lintian/overrides/tidegate
for page in LICENSE-APACHE LICENSE-MIT {README,CHANGELOG,THREAT_MODEL,ARCHITECTURE,CONTRIBUTING}.md; do
  place 0644 "$page" "usr/share/doc/tidegate/$page"
done
# dpkg's form of the changelog.
maintainer=${MAINTAINER:-Tidegate developers <tidegate@packages.invalid>}
printf 'tidegate (%s) stable; urgency=medium\n\n  * CHANGELOG.md states the changes.\n\n -- %s  %s\n' "$version" "$maintainer" \
  "$(LC_ALL=C date --utc --date="@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %H:%M:%S +0000')" |
  gzip -9n >"$root/usr/share/doc/tidegate/changelog.gz"
find docs apps web/client -type f | while read -r file; do
  place 0644 "$file" "usr/share/doc/tidegate/$file"
done
"$binary" man --to "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
complete() { # SHELL TARGET
  mkdir -p "$(dirname "$root/usr/share/$2")"
  "$binary" completions "$1" >"$root/usr/share/$2"
}
complete bash bash-completion/completions/tidegate
complete zsh zsh/vendor-completions/_tidegate
complete fish fish/vendor_completions.d/tidegate.fish
find "$root" -type d -exec chmod 0755 {} +
find "$root/usr/share" -type f -exec chmod 0644 {} +

mkdir "$root/DEBIAN"
# The newest version of glibc whose symbols the binary uses.
glibc=$(grep -ao 'GLIBC_2\.[0-9]*' "$binary" | sort --unique --version-sort | tail -1 | cut -d_ -f2)
kibibytes=$(du --summarize --apparent-size --block-size=1024 --exclude=DEBIAN "$root" | cut -f1)
sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@KIBIBYTES@/$kibibytes/; s/@GLIBC@/$glibc/; s/@MAINTAINER@/$maintainer/" \
  packaging/debian/control >"$root/DEBIAN/control"
install --mode=0755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
printf '%s\n' /etc/tidegate/tidegate.toml /etc/logrotate.d/tidegate >"$root/DEBIAN/conffiles"
(cd "$root" && find etc usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
chmod 0644 "$root"/DEBIAN/{control,conffiles,md5sums}

package="$out/tidegate_${version}_$architecture.deb"
dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$root" "$package" >&2
echo "$package"
