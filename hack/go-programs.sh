# Sourced by the build scripts that compile programs from pinned Go modules.
#
# build_programs FOLDER TARGET <LIST    builds what FOLDER does not hold yet; TARGET is the make target to name when that fails.
# A line of LIST: NAME MODULE-FOLDER PACKAGE MINUTES LINKER-FLAG...    MINUTES is a rough word for two cores ("3-minutes").
#
# Each program is built under a temporary name and renamed, so builds at the same time, or a broken one, do no harm.

# Fails unless the Go compiler is new enough for the module in a folder.
need_go() {
    minimum=$(sed -n 's|^go \([0-9.]*\).*|\1|p' "$1/go.mod")
    found=$(go env GOVERSION 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1) || true
    [ "$(printf '%s\n%s\n' "$minimum" "${found:-0}" | sort -V | head -n 1)" = "$minimum" ] && return
    echo "missing: go $minimum or newer (found: ${found:-none}). It builds what the tests run; install it from your distribution or go.dev." >&2
    exit 1
}

# The linker flags that tell a Kubernetes program its version, e.g. v1.36.3.
kubernetes_flags() {
    minor=${1#v*.}
    package=k8s.io/component-base/version
    echo "-X $package.gitVersion=$1 -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*} -X $package.gitTreeState=clean"
}

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
say() { # the same line over and over on a terminal, else a line each
    if [ -t 1 ]; then printf '\r\033[K%s' "$1"; else echo "$1"; fi
}
stop_build() {
    [ -z "$build" ] || kill "$build" 2>/dev/null || true
    rm -rf "$work"
}

build_programs() {
    folder=$1 target=$2
    list=$(while read -r name rest; do [ -x "$folder/$name" ] || echo "$name $rest"; done)
    [ -n "$list" ] || return 0
    total=$(echo "$list" | wc -l)
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/.build-XXXXXX")
    build= # the compiler that runs now
    trap stop_build EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    begun=$(date +%s)
    number=0
    while read -r name module package rough flags; do
        number=$((number + 1))
        need_go "$module"
        (cd "$module" && CGO_ENABLED=0 exec go build -trimpath -ldflags "-s -w $flags" -o "$work/program" "$package") >"$work/log" 2>&1 &
        build=$!
        label="  $number of $total: $name (about $(echo "$rough" | tr - ' '))"
        say "$label"
        ticks=0
        while kill -0 "$build" 2>/dev/null; do
            sleep 1
            ticks=$((ticks + 1))
            # A log file gets a line every half minute, a terminal every second.
            if [ -t 1 ] || [ $((ticks % 30)) -eq 0 ]; then say "$label, $(clock $(($(date +%s) - begun))) so far"; fi
        done
        if ! wait "$build"; then
            build=
            echo
            tail -n 40 "$work/log" >&2
            echo "building $name failed: see above. Modules are fetched through GOPROXY ($(go env GOPROXY)); '$target' tries again and keeps what is done." >&2
            exit 1
        fi
        build=
        mkdir -p "$(dirname "$folder/$name")"
        mv -f "$work/program" "$folder/$name"
        say "  $number of $total: $name done, $(clock $(($(date +%s) - begun))) so far"
        if [ -t 1 ]; then echo; fi
    done <<LIST
$list
LIST
    rm -rf "$work"
    trap - EXIT INT TERM HUP
}
