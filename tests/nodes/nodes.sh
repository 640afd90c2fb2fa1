# Nodes on one machine, for tests of runs over a network. Sourced by run.sh after script.sh. Needs root. Contains no tests.
#
#   nodes_up COUNT SHARED  starts the nodes n1 ... nCOUNT, joined by a switch, with the addresses 10.99.0.1 ... and SHARED as /mnt
#   on N COMMAND...        runs a command on node N, in /mnt, with an empty environment
#   unplug N, replug N     pulls the node's network cable, and plugs it in again
#   slow N MBIT MS LOSS    replaces the node's cable by one with this rate, this delay and this loss in percent
#   limit N RATE           limits what the node sends and receives, such as 1gbit
#   second_network N       adds an interface eth1, 10.98.0.N, that leads nowhere
#   die N                  kills all processes of the node at once; start_node N starts it again
#   nodes_down             ends the nodes and removes the folder $NODES
#
# A node has its own network, host name, processes, /tmp, /root, /run and /dev/shm, and an sshd on port 22. The switch is a bridge in one
# more network namespace. The namespaces exist only as long as their processes, so killing these removes interfaces, mounts and daemons.
# Nothing changes outside.
# shellcheck shell=bash

PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
NODES='' switch='' shared=''
# arrays indexed by the number of a node: the node's first process, the parent of this process, and the process of the slow cable
first=() holder=() cable=()

in_switch() { nsenter --target "$switch" --net "$@"; }

# within N COMMAND...: runs a command in the namespaces of node N.
within() {
    local n=$1
    shift
    nsenter --target "${first[n]}" --net --uts --mount --ipc --pid -- "$@"
}

on() {
    local n=$1
    shift
    within "$n" env -i -C /mnt HOME=/root USER=root LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"
}

# ssh_files N: writes the files of ssh for node N. Each node has its own host key. One user key opens all of them.
ssh_files() {
    local folder=$NODES/n$1/.ssh
    mkdir -p "$folder"
    ssh-keygen -q -t ed25519 -N '' -C "n$1" -f "$folder/host"
    cp "$NODES/user" "$folder/id_ed25519"
    cp "$NODES/user.pub" "$folder/authorized_keys"
    printf '%s\n' 'HostKey /root/.ssh/host' 'PidFile none' 'UsePAM no' 'StrictModes no' 'PermitRootLogin yes' 'MaxStartups 100' \
        >"$folder/sshd_config"
    printf '%s\n' 'GlobalKnownHostsFile /run/known_hosts' 'BatchMode yes' 'LogLevel ERROR' >"$folder/config"
    echo "n$1,10.99.0.$1 $(<"$folder/host.pub")" >>"$NODES/known_hosts"
    echo "10.99.0.$1 n$1" >>"$NODES/hosts"
}

# plug N: joins eth0 of node N to the switch.
plug() {
    in_switch ip link add "port$1" type veth peer name eth0 netns "${first[$1]}"
    configure "$1"
}

# configure N: turns on both ends of the cable of node N.
configure() {
    in_switch ip link set "port$1" master bridge up
    within "$1" ip link set eth0 up
    within "$1" ip address replace "10.99.0.$1/24" dev eth0
}

unplug() { in_switch ip link set "port$1" down; }
replug() { in_switch ip link set "port$1" up; }

slow() {
    in_switch ip link delete "port$1"
    "$here/slow.py" "$switch" "port$1" "${first[$1]}" "$2" "$3" "$4" >"$NODES/cable$1.log" 2>&1 </dev/null &
    cable[$1]=$!
    until_true 10 grep -q ready "$NODES/cable$1.log" || { cat "$NODES/cable$1.log" >&2; return 1; }
    configure "$1"
}

limit() {
    in_switch tc qdisc add dev "port$1" root tbf rate "$2" burst 256k latency 20ms
    within "$1" tc qdisc add dev eth0 root tbf rate "$2" burst 256k latency 20ms
}

# Both ends of eth1 are on the node.
second_network() {
    within "$1" ip link add eth1 type veth peer name eth1-end
    within "$1" ip address add "10.98.0.$1/24" dev eth1
    within "$1" ip link set eth1 up
    within "$1" ip link set eth1-end up
}

start_node() {
    rm -f "$NODES/n$1/ready"
    unshare --net --uts --mount --ipc --pid --fork --kill-child --mount-proc "$here/init.sh" "$NODES" "n$1" "$shared" \
        >"$NODES/n$1.log" 2>&1 </dev/null &
    holder[$1]=$!
    until_true 10 pgrep --parent "${holder[$1]}" >/dev/null
    first[$1]=$(pgrep --parent "${holder[$1]}")
    plug "$1"
    until_true 20 test -e "$NODES/n$1/ready" || { cat "$NODES/n$1.log" >&2; echo "node n$1 does not start" >&2; return 1; }
}

# The switch keeps no port of the old node, because both ends of a cable vanish together.
die() {
    kill -KILL "${first[$1]}"
    wait "${holder[$1]}" 2>/dev/null || true
}

# has_own_network PROCESS: succeeds once the process has left the network of this script.
has_own_network() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }

nodes_up() {
    local n
    shared=$2
    NODES=$(mktemp -d "${TMPDIR:-/tmp}/trireme-nodes-XXXXXX")
    echo '127.0.0.1 localhost' >"$NODES/hosts"
    ssh-keygen -q -t ed25519 -N '' -C user -f "$NODES/user"
    unshare --net sleep infinity &
    switch=$!
    until_true 10 has_own_network "$switch"
    in_switch ip link add bridge type bridge
    in_switch ip link set bridge up
    for ((n = 1; n <= $1; n++)); do ssh_files "$n"; done
    for ((n = 1; n <= $1; n++)); do start_node "$n"; done
}

nodes_down() {
    [ -n "$NODES" ] || return 0
    # a node that has not started yet is only in `holder`, which takes its first process along
    kill -KILL "${first[@]}" "${holder[@]}" "${cable[@]}" "$switch" 2>/dev/null || true
    # the mounts of the nodes end with these processes
    wait "${holder[@]}" "${cable[@]}" "$switch" 2>/dev/null || true
    rm -rf "$NODES"
    NODES='' first=() holder=() cable=()
}
