# Ends a control plane when the process that started it has ended, in whatever way: then this script's standard input,
# a pipe that only that process holds, reaches its end. Usage: sh -c SCRIPT watcher PARENT_DIRECTORY
# Makes the control plane's directory, prints its path, then reads process ids, one a line.

# Only the end of the pipe ends the watcher; the reader of its output may be gone.
trap '' HUP INT QUIT TERM PIPE

# Prints the start time of a process, which distinguishes it from a later one with the same id. Empty when it is gone or dead.
started() {
    if [ -d /proc/self ]; then
        stat=
        { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
        # The second field is the program's name and may hold anything; the last ')' ends it. The start is field 22.
        set -- ${stat##*) }
        [ "$1" = Z ] || [ "$1" = X ] || echo "${20}"
    else
        ps -o lstart= -p "$1" | tr -d ' '
    fi
}
running() { # ID:START
    [ -n "${1#*:}" ] && [ "$(started "${1%%:*}")" = "${1#*:}" ]
}

directory=$(mktemp -d "$1/portcullis-XXXXXX") || exit 1
echo "$directory"

servers=
while read -r pid; do
    servers="$servers $pid:$(started "$pid")"
done

for server in $servers; do
    running "$server" && kill -KILL "${server%%:*}"
done
# A dying server may still write: wait for it, five seconds at most.
tries=100
for server in $servers; do
    while running "$server" && [ $tries -gt 0 ]; do
        tries=$((tries - 1))
        sleep 0.05
    done
done
rm -rf -- "$directory"
