#!/bin/sh
# Builds the images of mcp-operator, mcp-runner and dynamo-webhooks, without a container engine: NAME.tar, an OCI image layout in an archive, in
# ${CARGO_TARGET_DIR:-target}/images. The same commit gives the same bytes wherever the clone and its target folder lie.
# IMAGE_PROFILE is the profile of Cargo.toml that all binaries are built with; without it, each has its own.
# SOURCE is the label that says where the sources are published; without it, the URL of the clone's remote 'origin'.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
case $target in /*) ;; *) target=$root/$target ;; esac
images=$target/images
host=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)

# Of when and what the images are: the commit's. What is not committed makes another image, and the label says so.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CARGO_INCREMENTAL=0
revision=$(git rev-parse HEAD)
[ -z "$(git status --porcelain)" ] || revision=$revision-dirty
# Neither a token in the URL nor a path of this machine; git@HOST:PATH is https://HOST/PATH.
origin=$(git remote get-url origin 2>/dev/null || true)
source=${SOURCE:-$(echo "${origin%.git}" | sed -n -e 's|^git@\([^:/]*\):|https://\1/|p;t' -e 's#^\(https\|ssh\)://\([^/@]*@\)\{0,1\}#https://#p')}

# No path of this machine stays in a binary: neither the clone's, nor the target folder's, nor those of the crates' sources. These
# exist once all are fetched.
cargo fetch --locked --quiet --target "$host"
remap() { # option: it, once for each path
    printf '%s\037' "$1$root=/portcullis" "$1$target=/target"
    for sources in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do printf '%s\037' "$1$sources=/crates"; done
}
# With --target, the flags are not those of build scripts and of macros for the compiler, which cannot be static. C sources with a date in them
# would get this one; the commit's would compile them, and what stands on them, again for each commit.
binaries() { # profile, -p NAME...
    profile=$1
    shift
    SOURCE_DATE_EPOCH=0 CARGO_ENCODED_RUSTFLAGS=$(remap --remap-path-prefix=)-Ctarget-feature=+crt-static \
        env "CFLAGS_$(echo "$host" | tr - _)=$(remap -ffile-prefix-map= | tr '\037' ' ')" \
        cargo build --locked --profile "$profile" --target "$host" "$@" --bins
}
operator=${IMAGE_PROFILE:-image-operator} runner=${IMAGE_PROFILE:-image}
if [ "$operator" = "$runner" ]; then
    # Together, they are compiled with the same features of their dependencies, and those once.
    binaries "$operator" -p mcp-operator -p mcp-runner -p dynamo-webhooks
else
    binaries "$operator" -p mcp-operator -p dynamo-webhooks
    binaries "$runner" -p mcp-runner
fi

mkdir -p "$images"
# Of the whole workspace, so that what 'make test' has compiled serves.
cargo build --quiet --locked --workspace --bin portcullis-images
"$target/debug/portcullis-images" roots >"$images/ca-certificates.crt"

image() { # name, profile, title, the most megabytes, files beside the binary: PATH=SOURCE
    name=$1 profile=$2 title=$3 limit=$4
    shift 4
    checked=
    for file; do
        checked="$checked --file ${file%%=*}"
        set -- "$@" --file "$file"
        shift
    done
    "$here/pack.sh" "$@" \
        ${source:+--label "org.opencontainers.image.source=$source"} \
        --label "org.opencontainers.image.title=$name" \
        --label "org.opencontainers.image.description=$title" \
        --label "org.opencontainers.image.version=$version" \
        --label "org.opencontainers.image.revision=$revision" \
        --label "org.opencontainers.image.created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" \
        --label "org.opencontainers.image.licenses=Apache-2.0" \
        "localhost/portcullis/$name:$version" "$images/$name.tar" "$target/$host/$profile/$name"
    # shellcheck disable=SC2086 # options, one word each
    "$target/debug/portcullis-images" check "$images/$name.tar" --limit "$limit" $checked
    echo "  in $images/$name.tar"
}
image mcp-operator "$operator" "The operator of MCP servers on Kubernetes" 20
# The promise is the shipped profile's; without whole-program optimization, the binary is larger. Cedar, CEL, Redis and YAML are a third of it.
[ "$runner" = image ] && limit=12 || limit=14
image mcp-runner "$runner" "The proxy beside one MCP server" "$limit" "/etc/ssl/certs/ca-certificates.crt=$images/ca-certificates.crt"
image dynamo-webhooks "$operator" "The stand-in for the webhooks of Dynamo's operator" 20
