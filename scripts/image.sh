#!/usr/bin/env bash
# Builds an OCI image without a daemon: scripts/image.sh [BINARY [FOLDER]]; without a binary, that of `make dist`, which it
# builds. FOLDER (target/image) gets the files of the image (root/) and the archive tidegate-VERSION-oci.tar:
#   podman load -i ARCHIVE; docker load -i ARCHIVE; skopeo copy oci-archive:ARCHIVE docker://REGISTRY/tidegate
# LEVEL is that of gzip. The image has what packaging/Containerfile states. Equal contents give an equal archive. Prints the path of the archive.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${2:-target/image}
if [ $# -ge 1 ]; then
  binary=$1
else
  scripts/dist.sh >&2
  binary=target/dist/tidegate
fi
root=$out/root layout=$out/layout recipe=packaging/Containerfile
rm -rf "$root" "$layout"
mkdir -p "$root/etc/ssl/certs" "$root/etc/tidegate" "$root/tmp" "$root/run/tidegate" "$layout/blobs/sha256"
version=$("$binary" --version | cut -d' ' -f2)
case $(uname -m) in
  x86_64) architecture=amd64 ;;
  aarch64) architecture=arm64 ;;
  *) architecture=$(uname -m) ;;
esac
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

install -D --mode=0755 "$binary" "$root/usr/bin/tidegate"
# The libraries and the loader, by the paths at which the loader finds them.
ldd "$binary" | grep -oE '/[^ ]+' | while read -r library; do
  install -D --mode=0755 "$(realpath "$library")" "$root$library"
done
install --mode=0644 packaging/image.toml "$root/etc/tidegate/tidegate.toml"
echo 'tidegate:x:65532:65532:Tidegate:/:/sbin/nologin' >"$root/etc/passwd"
echo 'tidegate:x:65532:' >"$root/etc/group"
# The certificates that `tls` towards servers trusts.
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
  install --mode=0644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
fi
chmod 1777 "$root/tmp"
find "$root" -mindepth 1 -type d ! -path "$root/tmp" -exec chmod 0755 {} +
chmod 0777 "$root/run/tidegate"

digest() { sha256sum "$1" | cut -d' ' -f1; }
# Moves a file to the blobs. Prints the members of its descriptor.
store() { # FILE MEDIA-TYPE
  local sum size
  sum=$(digest "$1") size=$(stat --format=%s "$1")
  mv "$1" "$layout/blobs/sha256/$sum"
  printf '"mediaType":"%s","digest":"sha256:%s","size":%s' "$2" "$sum" "$size"
}
pack() { # FOLDER
  tar --create --directory "$1" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" --format=pax \
    --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime --file - .
}
instruction() { sed -n "s/^$1 //p" "$recipe"; }

pack "$root" >"$out/layer.tar"
plain=$(digest "$out/layer.tar")
gzip -"${LEVEL:-9}"n "$out/layer.tar"
layer=$(store "$out/layer.tar.gz" application/vnd.oci.image.layer.v1.tar+gzip)
created=$(date --utc --date="@$time" +%Y-%m-%dT%H:%M:%SZ)
cat >"$out/config.json" <<JSON
{"created":"$created","architecture":"$architecture","os":"linux","config":{"User":"$(instruction USER)","ExposedPorts":{"$(instruction EXPOSE)/tcp":{}},"Entrypoint":$(instruction ENTRYPOINT),"Cmd":$(instruction CMD),"WorkingDir":"$(instruction WORKDIR)","StopSignal":"$(instruction STOPSIGNAL)","Labels":{"org.opencontainers.image.title":"tidegate","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"MIT OR Apache-2.0"}},"rootfs":{"type":"layers","diff_ids":["sha256:$plain"]},"history":[{"created":"$created","created_by":"packaging/Containerfile"}]}
JSON
config=$(store "$out/config.json" application/vnd.oci.image.config.v1+json)
manifest=application/vnd.oci.image.manifest.v1+json
printf '{"schemaVersion":2,"mediaType":"%s","config":{%s},"layers":[{%s}]}' "$manifest" "$config" "$layer" >"$out/manifest.json"
image=$(store "$out/manifest.json" "$manifest")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{%s,"annotations":{"org.opencontainers.image.ref.name":"%s"}}]}' \
  "$image" "tidegate:$version" >"$layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
archive=$out/tidegate-$version-oci.tar
pack "$layout" >"$archive"
echo "$archive"
