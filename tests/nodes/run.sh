#!/bin/bash
# Tests runs over a network, on nodes in network namespaces of this machine: `make test-nodes`. Needs root. Environment: TRIREME is the
# program, MPICH the same built for MPICH, SOURCE has the four files of Fashion-MNIST.
#
#   tests/nodes/run.sh                 # all scenarios
#   tests/nodes/run.sh cut dead        # only these
#   tests/nodes/run.sh bench           # on a quiet machine: measures the exchange at 1 Gbit/s
#
# Trains LeNet for a few steps on the first 2,000 images. A run on several nodes must have the digest of a run with one rank on one node.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${TRIREME:=$root/target/release/trireme}" "${MPICH:=$root/target-mpich/debug/trireme}"
# shellcheck source=tests/support/script.sh
. "$root/tests/support/script.sh"
# shellcheck source=tests/support/small_data.sh
. "$root/tests/support/small_data.sh"
# shellcheck source=tests/nodes/nodes.sh
. "$here/nodes.sh"

# The exit code of a scenario that cannot run here. The reason is in $WORK/why.
SKIPPED=77

may_run() {
    if [ "$(id -u)" != 0 ]; then
        skip nodes 'it needs root for network namespaces'
    elif ! unshare --net --uts --mount --ipc --pid --fork --mount-proc true 2>/dev/null; then
        skip nodes 'this machine does not allow namespaces'
    elif ! { command -v sshd && command -v ip && command -v mpirun; } >/dev/null; then
        skip nodes 'sshd, ip or mpirun is not installed (make test-nodes installs them)'
    else
        return 0
    fi
    return 1
}
may_run || { echo 'nodes: 0 passed, 0 failed, all skipped'; exit 0; }

WORK=$(mktemp -d "${TMPDIR:-/tmp}/trireme-network-XXXXXX")
scenario=''

# shellcheck disable=SC2317 # a trap calls it
end() {
    local code=$?
    trap '' INT TERM
    # Ends the process group of the scenario. The scenario's own trap then ends the nodes.
    [ -z "$scenario" ] || { kill -TERM -- "-$scenario"; wait "$scenario"; } 2>/dev/null || true
    rm -rf "$WORK"
    exit "$code"
}
trap end EXIT
trap 'exit 130' INT TERM

cannot() {
    echo "$*" >"$WORK/why"
    exit "$SKIPPED"
}

# says FILE WORDS: fails unless a line of the file has these words, a regular expression.
says() { grep -qE -- "$2" "$1" || fail "$1 does not say \"$2\""; }

# finish CODE SECONDS: waits for the background command $run. Fails unless it ends with this exit code within this time. CODE can also be
# `failed`, which means any code except 0.
finish() {
    local expected=$1 most=$2 code=0
    until_true "$most" test ! -e "/proc/$run" || fail "not ended after $most s: $(tail -n 3 ./*.log)"
    wait "$run" || code=$?
    [ "$code" = "$expected" ] || { [ "$expected" = failed ] && [ "$code" != 0 ]; } || fail "code $code instead of $expected"
}

# ends CODE SECONDS COMMAND...: runs the command. Fails unless it ends with this exit code within this time, as in `finish`.
ends() {
    local expected=$1 most=$2
    shift 2
    "$@" &
    run=$!
    finish "$expected" "$most"
}

recipe=recipes/fashion-mnist-lenet.toml
# integer codec and four workers, so that the bits do not depend on the number of ranks
training=(--data data --set batch=16 --set workers=4 --set reduce.codec=exact --set epochs=500)
mpi=(--bind-to none --oversubscribe)

# train OUT HOSTS RANKS ARGUMENTS...: trains with Open MPI, started on n1. Writes OUT.log.
train() {
    local out=$1 hosts=$2 ranks=$3
    shift 3
    on 1 timeout 240 mpirun "${mpi[@]}" --host "$hosts" -n "$ranks" ./trireme train "$recipe" "${training[@]}" --threads 1 \
        --out "out/$out" "$@" >"$out.log" 2>&1
}

# start OUT HOSTS RANKS ARGUMENTS...: calls `train` in the background, and waits until it has done five steps.
start() {
    train "$@" &
    run=$!
    reach "$1" 5
}

steps() { { grep '"event":"step"' "out/$1/metrics.jsonl" || true; } 2>/dev/null | wc -l; }
has_steps() { [ "$(steps "$1")" -ge "$2" ]; }
# reach OUT STEP: waits until the run has done this step.
reach() { until_true 60 has_steps "$1" "$2" || fail "$1 has not come to step $2: $(tail -n 5 "$1.log")"; }

# no_ranks NODE...: succeeds if no rank is left on these nodes.
no_ranks() {
    local n
    for n in "$@"; do ! on "$n" pgrep --exact trireme >/dev/null || return 1; done
}

digest() { sed -n 's/.*"event":"end".*"digest":"\([^"]*\)".*/\1/p' "out/$1/metrics.jsonl" | tail -n 1; }

# same OUT STEPS: fails if the digest differs from that of a run with one rank on one node and STEPS steps.
same() {
    local whole=$WORK/digest-$2
    if [ ! -s "$whole" ]; then
        train "whole-$2" n1:1 1 --max-steps "$2" || fail "$(<"whole-$2.log")"
        digest "whole-$2" >"$whole"
    fi
    [ -s "$whole" ] || fail "a run of $2 steps has no digest"
    [ "$(digest "$1")" = "$(<"$whole")" ] || fail "$1 has the digest \"$(digest "$1")\" instead of \"$(<"$whole")\""
}

# Trains on 2 and on 4 nodes, with 1 and with 2 ranks per node.
test_ranks() {
    nodes_up 4 "$PWD"
    train 2x1 n1:1,n2:1 2 --max-steps 20
    train 2x2 n1:2,n2:2 4 --max-steps 20
    train 4x1 n1:1,n2:1,n3:1,n4:1 4 --max-steps 20
    # more ranks than workers are not allowed
    train 4x2 n1:2,n2:2,n3:2,n4:2 8 --max-steps 20 --set workers=8
    train 8-workers n1:1 1 --max-steps 20 --set workers=8
    same 2x1 20
    same 2x2 20
    same 4x1 20
    [ "$(digest 4x2)" = "$(digest 8-workers)" ] || fail 'eight ranks on four nodes compute other bits than one'
    on 1 mpirun "${mpi[@]}" --host n1:2,n2:2 -n 4 ./trireme doctor >doctor.log 2>&1 || fail "$(<doctor.log)"
    says doctor.log '^n2 +ranks 2-3'
}

test_hydra() {
    [ -x "$MPICH" ] || cannot "no $MPICH; make test-mpich builds it"
    command -v mpiexec.hydra >/dev/null || cannot 'MPICH is not installed'
    nodes_up 2 "$PWD"
    cp "$MPICH" trireme-mpich
    on 1 timeout 240 mpiexec.hydra -launcher ssh -hosts n1,n2 -n 4 -ppn 2 ./trireme-mpich train "$recipe" "${training[@]}" \
        --threads 1 --out out/hydra --max-steps 20 >hydra.log 2>&1
    same hydra 20
}

# A Slurm with a slurmd on each node.
# shellcheck disable=SC2016 # the nodes read these variables
test_slurm() {
    { command -v slurmctld && command -v slurmd; } >/dev/null || cannot 'Slurm is not installed'
    local conf=SLURM_CONF=/mnt/slurm/slurm.conf
    nodes_up 2 "$PWD"
    cp "$root/tests/slurm/cluster.sh" .
    on 1 bash -euc '. ./cluster.sh; CLUSTER=/mnt/slurm; mkdir $CLUSTER; write_config "n1 10.99.0.1" "n1 10.99.0.1" "n2 10.99.0.2"'
    # not in the shared folder, because both nodes use the same names
    echo 'PMIxCliTmpDirBase=/tmp' >slurm/mpi.conf
    on 1 $conf slurmctld -c
    on 1 $conf slurmd -c -N n1
    on 2 $conf slurmd -c -N n2
    on 1 $conf timeout 30 bash -c 'until [ "$(sinfo --noheader --format=%T)" = idle ]; do sleep 0.2; done' ||
        fail "the nodes do not come up: $(tail slurm/*.log)"
    on 1 $conf TRIREME=/mnt/trireme timeout 240 sbatch --wait --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 \
        --output=slurm.log jobscripts/train.sbatch "$recipe" "${training[@]}" --out out/slurm --max-steps 20 ||
        fail "$(cat slurm.log slurm/*.log)"
    same slurm 20
    grep '"event":"start"' out/slurm/metrics.jsonl | grep -q '"ranks":4[,}]' || fail 'not four ranks'
}

# hosts.sh checks the machines, passes them the settings in env.sh, stops a run, and resumes it.
test_hosts() {
    nodes_up 2 "$PWD"
    printf '%s\n' 'n1 slots=2' 'n2 slots=2' >hosts
    on 1 TRIREME=/mnt/trireme jobscripts/hosts.sh -c hosts 2>hosts.log || fail "$(<hosts.log)"
    says hosts.log 'ready: 2 machines for 4 ranks'
    cat >noting <<'END'
#!/bin/sh
env >"/mnt/env-$(hostname)"
exec /mnt/trireme "$@"
END
    chmod +x noting
    on 1 TRIREME=/mnt/noting timeout 240 jobscripts/hosts.sh hosts "$recipe" "${training[@]}" --threads 1 --out out/env --max-steps 20 \
        >hosts.log 2>&1 || fail "$(<hosts.log)"
    says env-n2 '^OMP_PROC_BIND=false$'
    on 1 TRIREME=/mnt/trireme timeout --foreground 240 bash -c 'echo $$ >pid; exec jobscripts/hosts.sh hosts "$@"' - "$recipe" \
        "${training[@]}" --threads 1 --out out/hosts --max-steps 60 >hosts.log 2>&1 &
    run=$!
    reach hosts 10
    on 1 kill -TERM "$(<pid)"
    finish 75 60
    has_steps hosts 60 && fail 'TERM stopped nothing'
    on 1 TRIREME=/mnt/trireme timeout 240 jobscripts/hosts.sh hosts "$recipe" "${training[@]}" --threads 1 --out out/hosts --max-steps 60 \
        >hosts.log 2>&1 || fail "$(<hosts.log)"
    same hosts 60
    # node 2 first has another program, and then no shared folder
    cp hosts other-program
    chmod +x other-program
    within 2 mount --bind /mnt/other-program /mnt/trireme
    ends 1 60 on 1 TRIREME=/mnt/trireme jobscripts/hosts.sh hosts "$recipe" 2>hosts.log
    says hosts.log 'n2: has a different program at /mnt/trireme'
    within 2 umount /mnt/trireme
    within 2 umount /mnt
    ends 1 60 on 1 TRIREME=/mnt/trireme jobscripts/hosts.sh hosts "$recipe" 2>hosts.log
    says hosts.log 'n2: has no program /mnt/trireme'
    ! grep -q 'n1:' hosts.log || fail "n1 is blamed: $(<hosts.log)"
}

# Node 2 first has the program but no data set, and then its own copy of the data set and its own output folder.
test_folder() {
    nodes_up 2 "$PWD"
    mkdir own
    cp -r trireme recipes own
    within 2 mount --bind /mnt/own /mnt
    ends failed 60 train no-data n1:1,n2:1 2 --max-steps 20
    says no-data.log '^rank 1 on n2: data is not a data set: there is no such folder'
    cp -r data own
    ends 0 60 train own n1:1,n2:1 2 --max-steps 20
    same own 20
}

test_stage() {
    local n
    nodes_up 2 "$PWD"
    train stage n1:1,n2:1 2 --max-steps 20 --stage /tmp
    same stage 20
    for n in 1 2; do
        on $n find /tmp -name '*.tfrecord' >staged
        [ -s staged ] || fail "no shard in /tmp of n$n: $(on $n ls -R /tmp)"
    done
}

# On one node, first the program differs and then the data set.
test_differ() {
    nodes_up 2 "$PWD"
    { cat trireme; echo; } >other-program
    chmod +x other-program
    within 2 mount --bind /mnt/other-program /mnt/trireme
    ends failed 60 train other-program n1:1,n2:1 2 --max-steps 20
    says other-program.log '^rank 1 on n2: the program differs from rank 0'
    within 2 umount /mnt/trireme
    cp -r data other-data
    sed -i 's/"Sandal"/"Boot"/' other-data/dataset.json
    within 2 mount --bind /mnt/other-data /mnt/data
    ends failed 60 train other-data n1:1,n2:1 2 --max-steps 20
    says other-data.log '^rank 1 on n2: the recipe or the data set differs from rank 0.*"Sandal"'
}

# Trains over a link with 100 Mbit/s, 5 ms in each direction and 1 % loss.
test_slow() {
    [ -c /dev/net/tun ] || cannot 'no /dev/net/tun'
    nodes_up 2 "$PWD"
    slow 2 100 5 1
    train slow n1:1,n2:1 2 --max-steps 20 -v
    same slow 20
    says slow.log 'exchange: exact, .* float takes .*reduce.codec = "int8" sends fewer bytes'
}

# The cable of a node is unplugged for 20 s. TCP may need up to 20 s more until it sends again. The run must then continue.
test_cut() {
    nodes_up 2 "$PWD"
    start cut n1:1,n2:1 2 --max-steps 60 --stall-warn 5s
    unplug 2
    sleep 20
    replug 2
    finish 0 90
    says cut.log 'warning: waiting in ".*" \(operation [0-9]+\) for .*TCP gets no answer between n1 and n2'
    says cut.log 'the run continues'
    same cut 60
}

# The cable of a node is unplugged and stays so. The ranks end, but mpirun waits for the lost node. hosts.sh ends mpirun, too.
test_gone() {
    nodes_up 3 "$PWD"
    start abort n1:1,n2:1,n3:1 3 --stall-warn 5s --stall-abort 10s
    unplug 2
    until_true 60 no_ranks 1 3 || fail "ranks go on: $(<abort.log)"
    says abort.log 'waiting in ".*" \(operation [0-9]+\) for .*TCP gets no answer between n[123] and n.*--stall-abort'
    grep -E 'between n2 and|and n2' abort.log || fail "n2 is not named: $(<abort.log)"
    on 1 pkill -KILL mpirun
    wait "$run" || true
    replug 2
    printf '%s\n' n1 n2 n3 >hosts
    on 1 TRIREME=/mnt/trireme LOST=15 timeout 240 jobscripts/hosts.sh hosts "$recipe" "${training[@]}" --threads 1 --out out/gone \
        --max-steps 60 --stall-warn 5s --set checkpoint.every='"5 steps"' >gone.log 2>&1 &
    run=$!
    reach gone 10
    unplug 2
    finish failed 90
    says gone.log 'warning: waiting in .*TCP gets no answer'
    says gone.log 'hosts.sh: .* n2: '
    ! grep -E 'hosts.sh: .* n[13]: ' gone.log || fail 'another node is blamed'
    printf '%s\n' n1 n3 >hosts
    on 1 TRIREME=/mnt/trireme timeout 240 jobscripts/hosts.sh hosts "$recipe" "${training[@]}" --threads 1 --out out/gone --max-steps 60 \
        >resumed.log 2>&1 || fail "$(<resumed.log)"
    same gone 60
}

# All processes of a node are killed at once.
test_dead() {
    nodes_up 2 "$PWD"
    start dead n1:1,n2:1 2 --set checkpoint.every='"5 steps"'
    reach dead 10
    die 2
    finish failed 15
    says dead.log 'n2'
    no_ranks 1 || fail 'a rank on n1 goes on'
    start_node 2
    train dead n1:1,n2:1 2 --resume auto --max-steps 60
    same dead 60
}

# The nodes have a second network interface that leads nowhere.
test_interfaces() {
    nodes_up 2 "$PWD"
    second_network 1
    second_network 2
    ends failed 60 on 1 mpirun "${mpi[@]}" --host n1:1,n2:1 -n 2 ./trireme doctor >doctor.log 2>&1
    says doctor.log 'rank 1: .*cannot reach 10.98.0.1 on eth1 .*set OMPI_MCA_btl_tcp_if_include=10.99.0.0/24'
    ends failed 90 train hangs n1:1,n2:1 2 --max-steps 20 --stall-abort 25s
    says hangs.log 'rank 1: .*cannot reach 10.98.0.1 on eth1 .*set OMPI_MCA_btl_tcp_if_include=10.99.0.0/24'
    mpi+=(--mca btl_tcp_if_include 10.99.0.0/24)
    train chosen n1:1,n2:1 2 --max-steps 20
    same chosen 20
}

# The clock of one node is an hour ahead or an hour behind. All namespaces share the clock of the machine, so a preloaded library changes
# the time.
test_clocks() {
    nodes_up 2 "$PWD"
    cc -shared -fPIC -O1 -o clock.so "$here/clock.c"
    cat >late <<'END'
#!/bin/sh
[ "$(hostname)" = n2 ] && export CLOCK_AHEAD="$AHEAD" LD_PRELOAD=/mnt/clock.so
exec /mnt/trireme "$@"
END
    chmod +x late
    local ahead
    for ahead in 3600 -3600; do
        on 1 AHEAD=$ahead timeout 240 mpirun -x AHEAD "${mpi[@]}" --host n1:1,n2:1 -n 2 ./late train "$recipe" "${training[@]}" \
            --threads 1 --out "out/clock$ahead" --max-steps 20 --time-limit 10m >"clock$ahead.log" 2>&1
        same "clock$ahead" 20
    done
    # the run has released its lock at its end, even if a node's clock was ahead, so it can resume
    on 1 timeout 240 mpirun "${mpi[@]}" --host n1:1,n2:1 -n 2 ./trireme train "$recipe" "${training[@]}" --threads 1 --out out/clock3600 \
        --resume auto --max-steps 60 >resumed.log 2>&1
    same clock3600 60
}

# The nodes have only IPv6 addresses.
test_ipv6() {
    local n
    nodes_up 2 "$PWD"
    for n in 1 2; do
        within $n ip address flush dev eth0 scope global
        within $n ip address add "fd99::$n/64" dev eth0 nodad
    done
    sed 's/10\.99\.0\./fd99::/' "$NODES/hosts" >hosts6
    for n in 1 2; do within $n mount --bind /mnt/hosts6 /etc/hosts; done
    mpi+=(--mca btl_tcp_disable_family 4 --mca oob_tcp_disable_ipv4_family 1)
    train ipv6 n1:1,n2:1 2 --max-steps 20
    same ipv6 20
}

# Measures sums and `bench scale` on 2 and 4 nodes at 1 Gbit/s. With one image per step, nearly all of a step is the sum, so that the nodes
# can share the cores of this machine.
bench() {
    local hosts=n1:1,n2:1,n3:1,n4:1 n bench link
    bench=(timeout 240 mpirun "${mpi[@]}" --host "$hosts")
    nodes_up 4 "$PWD"
    for n in 1 2 3 4; do limit $n 1gbit; done
    for n in 2 4; do on 1 "${bench[@]}" -n $n ./trireme bench allreduce --sizes 64K,1M,4M,16M; done | "$here/table.py"
    for link in 1Gb/s,100us 10Gb/s,50us 100Gb/s,10us; do
        on 1 "${bench[@]}" -n 4 ./trireme bench scale --model lenet --batch 1 --threads 1 --link $link --ranks 2,4,8,64 | "$here/table.py"
    done
}

# in_folder NAME: runs a scenario in a folder of its own, which is /mnt on the nodes.
in_folder() {
    mkdir "$WORK/$1"
    cd "$WORK/$1"
    cp -rl "$WORK/all/." .
    trap nodes_down EXIT
    trap 'exit 130' INT TERM
    if [ "$1" = bench ]; then bench; else "test_$1"; fi
}

# launch NAME: starts a scenario in the background, in its own process group.
launch() {
    set -m
    (set -e; in_folder "$1") </dev/null &
    scenario=$!
    set +m
}

passed=0 failed=0 skipped=0
# run_scenario NAME: runs it and prints one line.
run_scenario() {
    local code=0 start=$SECONDS
    launch "$1" >"$WORK/$1.out" 2>&1
    wait "$scenario" || code=$?
    scenario=''
    case $code in
    0) passed=$((passed + 1)); echo "ok: $1 ($((SECONDS - start)) s)" ;;
    "$SKIPPED") skipped=$((skipped + 1)); skip "nodes: $1" "$(<"$WORK/why")" ;;
    *)
        failed=$((failed + 1))
        echo "FAILED: $1 ($((SECONDS - start)) s)"
        cat "$WORK/$1.out"
        tail -n 20 "$WORK/$1"/*.log 2>/dev/null || true
        ;;
    esac
    rm -rf "${WORK:?}/$1"
}

mkdir -p "$WORK/all/out"
cp "$TRIREME" "$WORK/all/trireme"
cp -r "$root/jobscripts" "$root/recipes" "$WORK/all"
make_data "$WORK/all/data"
if [ "${1:-}" = bench ]; then
    launch bench
    wait "$scenario"
    scenario=''
    exit 0
fi
[ $# -gt 0 ] || set -- ranks hydra slurm hosts folder stage differ slow cut gone dead interfaces clocks ipv6
for name in "$@"; do run_scenario "$name"; done
echo "nodes: $passed passed, $failed failed, $skipped skipped in $SECONDS s"
[ "$failed" = 0 ]
