#!/bin/sh
# Packs one static binary into an image: an OCI image layout in a tar archive, made with tar, gzip and sha256sum alone.
# Usage: pack.sh [--label NAME=VALUE]... [--file PATH=SOURCE]... REF OUT BINARY [ARG...]
#   REF      the image's whole name, as pods name it: localhost/portcullis/echo:1.0
#   BINARY   becomes /NAME and the entrypoint; ARGs its arguments, which `args` of a container replaces
#   --file   puts the file SOURCE at PATH in the image
# The same input gives the same bytes: files are sorted and belong to root, and every time is SOURCE_DATE_EPOCH (0 unless set).
# https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
set -eu
# Not root, and what the pods of the generated manifests run as.
user=65532:65532
epoch=${SOURCE_DATE_EPOCH:-0}

fail() {
    echo "pack.sh: $1" >&2
    exit 1
}
string() { # as a JSON string
    printf '%s' "$1" | LC_ALL=C grep -q '[[:cntrl:]]' && fail "'$1' has a control character"
    printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')"
}
for tool in tar gzip sha256sum readelf; do
    command -v "$tool" >/dev/null 2>&1 || fail "missing: $tool. On Debian 'apt-get install tar gzip coreutils binutils' installs all it needs."
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root" "$work/layout/blobs/sha256"
labels=
while :; do
    case ${1:-} in
    --label)
        case ${2:-} in ?*=*) ;; *) fail "--label wants NAME=VALUE, not '${2:-}'" ;; esac
        labels=$labels${labels:+,}$(string "${2%%=*}"):$(string "${2#*=}")
        ;;
    --file)
        case ${2:-} in /?*=?*) ;; *) fail "--file wants /PATH=SOURCE, not '${2:-}'" ;; esac
        install -D -m 0644 "${2#*=}" "$work/root${2%%=*}"
        ;;
    *) break ;;
    esac
    shift 2
done
[ $# -ge 3 ] || fail "usage: pack.sh [--label NAME=VALUE]... [--file PATH=SOURCE]... REF OUT BINARY [ARG...]"
ref=$1 out=$2 binary=$3
shift 3
case $ref in */*:*[!/]) ;; *) fail "'$ref' is not a whole name: REGISTRY/NAME:TAG, such as localhost/portcullis/echo:1.0" ;; esac

header=$(readelf -hl "$binary" 2>/dev/null) || fail "$binary is no ELF binary"
case $header in *"Requesting program interpreter"*) fail "$binary is linked dynamically; there are no libraries in the image. Link it statically: -C target-feature=+crt-static for Rust, CGO_ENABLED=0 for Go." ;; esac
case $header in
*X86-64*) architecture=amd64 ;;
*AArch64*) architecture=arm64 ;;
*) fail "$binary is for a machine that is neither x86-64 nor AArch64" ;;
esac

name=$(basename "$binary")
install -m 0755 "$binary" "$work/root/$name"
archive() { # folder: a tar of what is in it, to stdout
    (cd "$1" && LC_ALL=C tar --format=ustar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - -- *)
}
archive "$work/root" >"$work/layer"
diff_id=$(sha256sum <"$work/layer" | cut -d ' ' -f 1)
gzip -9n "$work/layer"

blob() { # media type, file, further members: moves the file to the blobs and prints its descriptor
    digest=$(sha256sum <"$2" | cut -d ' ' -f 1)
    printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%s%s}' "$1" "$digest" "$(wc -c <"$2" | tr -d ' ')" "${3:-}"
    mv "$2" "$work/layout/blobs/sha256/$digest"
}
command=
for argument; do command=$command${command:+,}$(string "$argument"); done
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
layer=$(blob layer.v1.tar+gzip "$work/layer.gz")
printf '{"created":"%s","architecture":"%s","os":"linux","config":{"User":"%s","WorkingDir":"/","Entrypoint":[%s],"Cmd":[%s],"Labels":{%s}},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"%s","created_by":"pack.sh"}]}' \
    "$created" "$architecture" "$user" "$(string "/$name")" "$command" "$labels" "$diff_id" "$created" >"$work/config"
config=$(blob config.v1+json "$work/config")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s],"annotations":{%s}}' "$config" "$layer" "$labels" >"$work/manifest"
# The first name is for skopeo, crane and podman, the second for containerd.
manifest=$(blob manifest.v1+json "$work/manifest" ",\"platform\":{\"architecture\":\"$architecture\",\"os\":\"linux\"},\"annotations\":{\"org.opencontainers.image.ref.name\":$(string "${ref##*:}"),\"io.containerd.image.name\":$(string "$ref")}")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]}' "$manifest" >"$work/layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/layout/oci-layout"

mkdir -p "$(dirname "$out")"
# Beside its place and renamed: whoever reads it meanwhile has the old one whole.
archive "$work/layout" >"$out.$$"
mv "$out.$$" "$out"
