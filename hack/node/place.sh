# Sourced by the scripts of the node: where it is, and whether it runs.
#
# A node is a tree of processes in namespaces of their own (processes, network, mounts, host name) and in one cgroup. The namespaces, with
# the mounts, links, routes and packet filter rules in them, end with the last process; the cgroup is the kernel's list of those processes,
# so that nothing is ever ended by its name or by a number that another process has by now.

node=node1
state=/var/lib/portcullis-node # All that it writes. Seen from within, /var and /run are folders of it.
cgroup=portcullis-node         # Below the root of each hierarchy; `system` in it holds the node's own programs, `kubepods` the pods.
link=portcullis                # The host's end of the link to the node, with which the routes go too.
host_address=198.18.0.1        # The block for benchmarks (RFC 2544): in nobody's network.
node_address=198.18.0.2
pods=10.244.0.0/24
services=10.96.0.0/24
first_service=10.96.0.1
dns_service=10.96.0.10

fail() {
    echo "$*" >&2
    exit 1
}

# The folders of cgroup hierarchies: one with version 2, one for each controller with version 1.
hierarchies() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts; }

# The hierarchy in which the node's processes are counted.
counted() {
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then echo "/sys/fs/cgroup/$cgroup"; else echo "/sys/fs/cgroup/pids/$cgroup"; fi
}

processes() {
    find "$(counted)" -name cgroup.procs -exec cat {} + 2>/dev/null || true
}

# The process that holds the namespaces, nothing when the node does not run.
holder() {
    recorded=$(cat "$state/holder" 2>/dev/null) || return 0
    processes | grep -x -- "$recorded" || true
}

# One `node-up` or `node-down` at a time. The lock goes with the process and with what it started last, and leaves no file.
lock() {
    exec 9</var/lib
    flock --nonblock 9 && return
    echo "waiting for another 'make node-up' or 'make node-down'" >&2
    flock --timeout 120 9 || fail "another 'make node-up' or 'make node-down' runs and does not end; see 'fuser /var/lib'"
}
