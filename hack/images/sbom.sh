#!/bin/sh
# Writes an SBOM beside each image of build.sh: NAME.cdx.json, CycloneDX in JSON, in ${CARGO_TARGET_DIR:-target}/images. The same
# commit gives the same bytes. It is apart from build.sh, as images for tests need none, and the tool takes minutes to build.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
case $target in /*) ;; *) target=$root/$target ;; esac
images=$target/images
host=$(rustc -vV | sed -n 's/^host: //p')
# The tool: https://github.com/CycloneDX/cyclonedx-rust-cargo
cyclonedx=0.5.9
tool=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/cargo-cyclonedx/$cyclonedx
if [ ! -x "$tool/bin/cargo-cyclonedx" ]; then
    echo "building cargo-cyclonedx $cyclonedx, once per machine: two to three minutes on two cores"
    if ! CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --target-dir "$target/cargo-cyclonedx" --root "$tool" "cargo-cyclonedx@$cyclonedx"; then
        echo "building cargo-cyclonedx failed: see above. It writes the SBOMs; the images are made already. 'make images' tries again." >&2
        exit 1
    fi
    rm -r "$target/cargo-cyclonedx"
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
mkdir -p "$images"
cargo build --quiet --locked -p portcullis-images

# The tool writes a file beside each Cargo.toml of the workspace, so it works on a copy of the sources.
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$sources"
(cd "$sources" && "$tool/bin/cargo-cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 --all --no-build-deps --target "$host")

sbom() { # name, folder, further components by their package URLs
    name=$1 folder=$2
    shift 2
    for purl; do
        set -- "$@" --component "$purl"
        shift
    done
    "$target/debug/portcullis-images" sbom --folder "$sources" "$@" <"$sources/$folder/$name.cdx.json" >"$images/$name.cdx.json.$$"
    mv "$images/$name.cdx.json.$$" "$images/$name.cdx.json"
}
# The C library is in the binaries too. A distribution's version says which of its fixes.
libc=pkg:generic/glibc@$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)
debian=$(dpkg-query -W -f '${Version}' libc6-dev 2>/dev/null) && libc=pkg:deb/$(. /etc/os-release && echo "$ID")/libc6-dev@$debian
roots=$(cargo pkgid --locked webpki-root-certs | sed 's/.*[#@]//')
sbom mcp-operator mcp/operator "$libc"
sbom dynamo-webhooks dynamo/webhooks "$libc"
sbom mcp-runner mcp/runner "$libc" "pkg:cargo/webpki-root-certs@$roots"
echo "SBOMs: $images/mcp-operator.cdx.json, $images/mcp-runner.cdx.json, $images/dynamo-webhooks.cdx.json"
