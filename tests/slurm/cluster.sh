# A private Slurm on this machine: one node, only the loopback interface, in a temporary folder. Sourced by run.sh after script.sh. Contains
# no tests.
#
#   start_cluster       sets and exports SLURM_CONF; the folder is $CLUSTER
#   stop_cluster        ends its jobs, its daemons and leftover processes, and removes the folder
#
# Runs as root without munge, cgroups and systemd, so it uses auth/none, proctrack/linuxproc and task/none.
# shellcheck shell=bash

PATH=$PATH:/usr/sbin
CLUSTER=''

# Prints an unused port of 127.0.0.1.
free_port() {
    local port
    while
        port=$((20000 + RANDOM % 10000))
        (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null
    do :; done
    echo "$port"
}

# write_config CONTROLLER NODE...: writes the files of Slurm to $CLUSTER. CONTROLLER and each NODE are `NAME ADDRESS`.
write_config() {
    local cores user node name address controller=$1
    shift
    mkdir "$CLUSTER/state" "$CLUSTER/pmix"
    cores=$(nproc)
    [ "$cores" -ge 4 ] || cores=4
    user=$(id -un)
    cat >"$CLUSTER/slurm.conf" <<END
ClusterName=trireme-test
SlurmctldHost=${controller% *}(${controller#* })
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$CLUSTER/state
SlurmdSpoolDir=$CLUSTER/spool-%n
SlurmctldPidFile=$CLUSTER/slurmctld.pid
SlurmdPidFile=$CLUSTER/slurmd-%n.pid
SlurmctldLogFile=$CLUSTER/slurmctld.log
SlurmdLogFile=$CLUSTER/slurmd-%n.log
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=10
GresTypes=gpu
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
END
    for node in "$@"; do
        name=${node% *} address=${node#* }
        mkdir -p "$CLUSTER/spool-$name"
        echo "NodeName=$name NodeHostname=$name NodeAddr=$address CPUs=$cores Boards=1 SocketsPerBoard=1 CoresPerSocket=$cores" \
            'ThreadsPerCore=1 RealMemory=2000 Gres=gpu:2 State=UNKNOWN' >>"$CLUSTER/slurm.conf"
    done
    # The default is in /tmp, by user and job number, where files of another Slurm may exist.
    echo "PMIxCliTmpDirBase=$CLUSTER/pmix" >"$CLUSTER/mpi.conf"
    # Slurm needs device files but only counts them, so any will do.
    echo "Name=gpu File=$CLUSTER/gpu[0-1]" >"$CLUSTER/gres.conf"
    mknod "$CLUSTER/gpu0" c 1 3
    mknod "$CLUSTER/gpu1" c 1 3
}

start_cluster() {
    CLUSTER=$(mktemp -d "${TMPDIR:-/tmp}/trireme-slurm-XXXXXX")
    # first, so that stop_cluster can never reach the jobs of a real cluster
    export SLURM_CONF=$CLUSTER/slurm.conf
    write_config 'localhost 127.0.0.1' 'localhost 127.0.0.1'
    slurmctld -c -f "$SLURM_CONF" 2>"$CLUSTER/start.log"
    slurmd -c -N localhost -f "$SLURM_CONF" 2>>"$CLUSTER/start.log"
    until_true 10 is_idle || { tail "$CLUSTER"/*.log >&2; fail 'the private Slurm does not come up'; }
}

is_idle() { [ "$(sinfo --noheader --format=%T)" = idle ]; }
has_no_jobs() { [ -z "$(squeue --noheader)" ]; }
has_no_daemons() { [ ! -f "$CLUSTER/slurmd-localhost.pid" ] && [ ! -f "$CLUSTER/slurmctld.pid" ]; }

stop_cluster() {
    [ -n "$CLUSTER" ] || return 0
    local id name
    scancel --user="$(id -un)" 2>/dev/null || true
    until_true 15 has_no_jobs || true
    for name in slurmd-localhost slurmctld; do
        [ ! -f "$CLUSTER/$name.pid" ] || kill "$(cat "$CLUSTER/$name.pid")" 2>/dev/null || true
    done
    until_true 5 has_no_daemons || true
    # the daemons, step daemons and tasks that are left
    for id in $(processes_with "SLURM_CONF=$CLUSTER/slurm.conf"); do kill -KILL "$id" 2>/dev/null || true; done
    rm -rf "$CLUSTER"
    CLUSTER=''
}
