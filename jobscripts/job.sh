# Functions shared by pbs.sh, lsf.sh, flux.sh, hosts.sh and local.sh: settings, the command line of trireme, starting and stopping it. Site
# settings are in env.sh, which this file reads.
# shellcheck shell=bash disable=SC2034 # the scripts that read this file use what it sets

script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
me=$(basename "$0")

# The settings that the user gave, as lines of a shell script. env.sh sets the other settings on the node where the job runs.
settings=$(for name in TRIREME RANKS THREADS GPUS TIME WARN DEVICE STAGE NODE_DISK MAX_RESTARTS MPIRUN MPIRUN_FLAGS; do
    [ -z "${!name+given}" ] || printf 'export %s=%q\n' "$name" "${!name}"
done)
: "${RANKS:=2}" "${GPUS:=0}" "${TIME:=240}" "${WARN:=120}" "${MAX_RESTARTS:=100}" "${RESTARTS:=0}"
# `wanted` is the number of compute threads that the user set. THREADS is the number of cores per rank.
wanted=${THREADS:-}
: "${THREADS:=4}"

# Accept only numbers, because arithmetic in bash executes commands contained in a variable.
for name in RANKS THREADS GPUS TIME WARN MAX_RESTARTS RESTARTS; do
    [[ ${!name} =~ ^[0-9]+$ ]] || { echo "$me: $name=${!name}: expected a whole number >= 0" >&2; exit 2; }
done

# shellcheck source=jobscripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=jobscripts/threads.sh
. "$(dirname "${BASH_SOURCE[0]}")/threads.sh"

say() {
    echo "$me: $(date '+%F %T') $*" >&2
}

# plural NUMBER NOUN: prints both, with an s unless the number is 1.
plural() {
    echo "$1 $2$([ "$1" = 1 ] || echo s)"
}

# Prints the comment at the head of the script and exits.
usage() {
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script" >&2
    exit 2
}

# split ARGUMENTS...: stores the words before `--` in the array `options` and the words after it in `command`, and
# `--resume auto` for a training in `resume`.
split() {
    options=() command=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    [ $# -gt 1 ] || usage
    shift
    command=("$@") resume=()
    [ "$1" != train ] || resume_of "$@"
}

# job_text RESTARTS ARGUMENTS...: prints a job script that runs this script with --run on the nodes.
job_text() {
    local restarts=$1
    shift
    echo '#!/bin/bash'
    [ -z "$settings" ] || echo "$settings"
    echo "export RESTARTS=$restarts"
    printf 'exec'
    printf ' %q' "$script" --run "$@"
    echo ' </dev/null'
}

# Builds the command line of trireme from `command` in `line`, with the options that a job adds to each subcommand. Sets `parallel` if it
# runs on all ranks.
trireme_line() {
    local own=()
    line=("$TRIREME" "${command[@]}") parallel=''
    # with a GPU, leave the cores per rank to the loader
    if has_gpu || [ "${DEVICE:-auto}" = cuda ]; then wanted=''; fi
    threads_of "$wanted" "$THREADS"
    case "${command[0]} ${command[1]:-}" in
    'train '* | 'eval '* | 'doctor '* | 'bench allreduce' | 'bench scale') parallel=yes ;;
    'predict '*) ! given --out "${command[@]}" || parallel=yes ;;
    esac
    case ${command[0]}$parallel in
    trainyes | evalyes | predictyes | sweep)
        given --device "${command[@]}" || own+=(--device "${DEVICE:-auto}")
        given --threads "${command[@]}" || own+=("${threads[@]}")
        ;;
    # without --out, predict does not accept --threads, and its default is the CPU
    predict) [ -z "${DEVICE:-}" ] || given --device "${command[@]}" || own+=(--device "$DEVICE") ;;
    esac
    case ${command[0]} in
    train | eval | sweep)
        own+=("${resume[@]}")
        ! stages "${command[@]}" || own+=(--stage "$NODE_DISK")
        ;;
    esac
    # a sweep passes the words after `--` to each training
    [ "${command[0]}" != sweep ] || given -- "${command[@]}" || line+=(--)
    line+=("${own[@]}")
}

# mpi_flags [HOSTFILE]: stores mpirun's flags in `flags`. trireme itself divides the cores. The file has the machine of each rank.
# MPIRUN_FLAGS, if set, replaces all flags that are not about machines.
mpi_flags() {
    local version plain file name names=''
    mpirun=${MPIRUN:-mpirun}
    version=$("$mpirun" --version 2>&1) || { say "cannot run $mpirun; set MPIRUN to another launcher"; exit 2; }
    case $version in
    *'Open MPI'* | *OpenRTE*)
        plain='--bind-to none --oversubscribe' file=--hostfile
        # Over ssh, Open MPI passes only its own variables and variables that -x names to the other machines. MPICH passes all.
        names=$(compgen -e | grep -xE 'LD_LIBRARY_PATH|(OMP|GOMP|ONEDNN|TRIREME|NCCL|UCX)_.*' || true)
        ;;
    *) plain='' file=-f ;;
    esac
    read -ra flags <<<"${MPIRUN_FLAGS-$plain}"
    [ $# -gt 0 ] || return 0
    flags+=("$file" "$1")
    for name in $names; do flags+=(-x "$name"); done
}

launcher='' interrupted='' early='' stopped='' signals=0 code=0

# Passes USR1 and the first TERM or INT to the launcher as USR1, which passes it to the ranks. A second USR1 has no effect, because some
# schedulers send it to all processes of a job and some only to this one. Later TERM and INT call `signal_ranks`, which a script may define.
stop() {
    interrupted=yes
    if [ "$1" != USR1 ]; then
        stopped=yes
        signals=$((signals + 1))
        [ "$signals" -lt 2 ] || { signal_ranks; return 0; }
    fi
    [ -n "$launcher" ] || { early=yes; return 0; }
    say "$1: stopping; the ranks write a checkpoint"
    kill -s USR1 "$launcher" 2>/dev/null || true
}

signal_ranks() { :; }

catch_signals() {
    local signal
    for signal in TERM INT USR1; do
        # shellcheck disable=SC2064
        trap "stop $signal" "$signal"
    done
}

# launch COMMAND...: runs the command and stores its exit code in `code`.
launch() {
    # a signal arrived before anything was started
    if [ -n "$early" ]; then
        early='' code=75
        return 0
    fi
    "$@" </dev/null &
    launcher=$!
    await "$launcher"
    launcher=''
}

# submit_again REFUSED COMMAND...: submits the job again after a stop with code 75, unless a signal stopped it for good or it has
# restarted too often. The command submits it and prints its id. REFUSED is the message if that fails.
submit_again() {
    local next refused=$1
    shift
    if [ -n "$stopped" ]; then
        say 'stopped for good by a signal. To continue later, submit the same command again'
    elif [ "$RESTARTS" -ge "$MAX_RESTARTS" ]; then
        say "restarted $RESTARTS times, which is the limit. To continue, submit the same command again"
    elif next=$("$@"); then
        say "continues as job $next"
    else
        say "$refused. To continue, submit the same command again"
    fi
}

# in_session COMMAND...: like launch, but in a new session, so that only this script receives Ctrl-C from the terminal.
in_session() {
    launch setsid "$@"
}

# A marker in the environment of every rank, which `signal_marked` looks for.
mark=trireme-$$-$RANDOM

# Sends signal $1 to the processes with the marker $2 in their environment. Used with `bash -c` on this and other machines.
# shellcheck disable=SC2016
signal_marked='for file in $(grep -lzxF "TRIREME_MARK=$2" /proc/[0-9]*/environ 2>/dev/null); do
    process=${file#/proc/}
    kill -s "$1" "${process%/environ}" 2>/dev/null || true
done'

# repeat RESTARTS COMMAND...: runs `in_session`, and again at most RESTARTS times after a stop (75) that neither TERM nor INT caused.
repeat() {
    local left=$1
    shift
    catch_signals
    for (( ; ; left--)); do
        in_session "$@"
        [ "$code" = 75 ] && [ -z "$stopped" ] && [ "$left" -gt 0 ] || return 0
        say "continues from the checkpoint ($(plural $((left - 1)) restart) left)"
    done
}
