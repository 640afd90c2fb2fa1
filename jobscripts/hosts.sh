#!/bin/bash
# Trains on more than one machine with ssh and mpirun, without a scheduler. Stops cleanly and can restart itself.
#
#   jobscripts/hosts.sh [-r RESTARTS] HOSTFILE RECIPE [OPTIONS OF trireme train]
#   jobscripts/hosts.sh -c HOSTFILE                      # only checks whether the machines are ready
#   jobscripts/hosts.sh -r 9 hosts recipes/cifar10-resnet20.toml --out runs/r20 --time-limit 8h
#
# HOSTFILE has one machine per line with its number of ranks [1]: `n17 slots=4`, `n17:4` or `n17 4`. # begins a comment. Every machine must
# have this folder and the program at the same path (a shared file system) and accept ssh without asking for a password. The script checks
# each machine before the start and after a failure, and names a machine that fails.
#
# TERM and the first Ctrl-C become USR1 for the ranks. They write a checkpoint and end with code 75. The same command then continues
# (`--resume auto`). Later signals are sent to the ranks on their machines by ssh. After a second Ctrl-C they still end with code 75. A
# third Ctrl-C ends them at once. -r N: restarts at most N times after a stop (code 75) that neither TERM nor Ctrl-C caused. Environment
# variables: MPIRUN, MPIRUN_FLAGS, SSH [ssh], which mpirun uses, too, and LOST [540], the seconds after which a machine whose network does
# not answer counts as lost, and mpirun ends. LOST must be less than --stall-abort. Otherwise a rank ends the run first. Open MPI's mpirun
# then no longer reacts when ssh gives up the machine, and waits 15 minutes for it. MPICH's mpiexec always waits until a rank has ended the
# run.
#
# The ranks on all machines get LD_LIBRARY_PATH, OMP_*, GOMP_*, ONEDNN_*, TRIREME_*, NCCL_* and UCX_* from env.sh and from the environment
# of this script.
set -euo pipefail

# shellcheck source=jobscripts/job.sh
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

restarts=0 check=''
while getopts r:c option; do
    case $option in
    r) restarts=$OPTARG ;;
    c) check=yes ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[[ $restarts =~ ^[0-9]+$ ]] || { echo "$me: -r $restarts: expected a number of restarts >= 0" >&2; exit 2; }
[ $# -gt 1 ] || { [ -n "$check" ] && [ $# = 1 ]; } || usage
hostfile=$1
shift

[[ ${LOST:=540} =~ ^[1-9][0-9]*$ ]] || { echo "$me: LOST=$LOST: expected a number of seconds >= 1" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# mpirun ends the run when ssh gives up a machine. Open MPI also uses this command on the other machines, which have no $work. Hydra takes
# only a program, so its arguments are in a script.
alive=(-o "ServerAliveInterval=$(((LOST + 14) / 15))" -o ServerAliveCountMax=15)
printf '#!/bin/sh\nexec %s "$@"\n' "$(printf '%q ' "${SSH:-ssh}" "${alive[@]}")" >"$work/ssh"
chmod +x "$work/ssh"
export OMPI_MCA_plm_rsh_agent="${SSH:-ssh} ${alive[*]}" HYDRA_LAUNCHER_EXEC=$work/ssh

# Writes the machine of each rank to $work/ranks, one per line. Stores each machine once in the array `hosts`.
read_hosts() {
    local host count
    [ -r "$hostfile" ] || { say "$hostfile: cannot be read"; exit 2; }
    hosts=()
    while read -r host count; do
        if ! [[ $host =~ ^[A-Za-z0-9._-]+$ && $count =~ ^[1-9][0-9]*$ ]]; then
            say "$hostfile: \"$host $count\" is not a machine with a number of ranks, such as \"n17 4\""
            exit 2
        fi
        [[ " ${hosts[*]} " == *" $host "* ]] || hosts+=("$host")
        while ((count-- > 0)); do echo "$host"; done >>"$work/ranks"
    done < <(sed -e 's/#.*//' -e 's/:\([0-9]*\)[[:space:]]*$/ \1/' -e 's/slots=//' -e '/^[[:space:]]*$/d' -e 's/[[:space:]]*$//' \
        -e 's/^[[:space:]]*\([^[:space:]]*\)$/\1 1/' "$hostfile")
    [ "${#hosts[@]}" -gt 0 ] || { say "$hostfile: names no machine; expected lines such as \"n17 4\""; exit 2; }
}

# run_on HOST WORDS...: runs the bash script from standard input on HOST, with the words as its arguments.
run_on() {
    local host=$1
    shift
    # shellcheck disable=SC2029 # the words are quoted for the remote shell
    timeout 30 "${SSH:-ssh}" -o BatchMode=yes -o ConnectTimeout=10 "$host" "bash -s -- $(printf '%q ' "$@")"
}

# The check of a machine. It prints the reason if the machine is not ready.
# shellcheck disable=SC2016
ready='cd "$1" 2>/dev/null || { echo "has no folder $1"; exit 1; }
[ -x "$2" ] || { echo "has no program $2"; exit 1; }
[ "$(cksum <"$2")" = "$3" ] || { echo "has a different program at $2; copy the same program to all machines"; exit 1; }
[ -z "$4" ] || export LD_LIBRARY_PATH=$4
said=$("$2" --version 2>&1 </dev/null) || { echo "cannot start $2: $(tail -n 1 <<<"$said")"; exit 1; }'

# Checks all machines at once. Fails and names each machine that is not ready.
check_hosts() {
    local host bad='' sum program
    program=$(command -v "$TRIREME") || { say "no program $TRIREME; set TRIREME in env.sh"; exit 2; }
    sum=$(cksum <"$program")
    for host in "${hosts[@]}"; do
        { run_on "$host" "$PWD" "$program" "$sum" "${LD_LIBRARY_PATH:-}" <<<"$ready" >"$work/$host.said" 2>&1 || echo "$?" >"$work/$host.failed"; } &
        checks+=("$!")
    done
    wait "${checks[@]}" || true
    checks=()
    for host in "${hosts[@]}"; do
        [ -e "$work/$host.failed" ] || continue
        bad=yes
        case $(<"$work/$host.failed") in
        124) say "$host: did not answer within 30 s" ;;
        255) say "$host: cannot be reached by ssh: $(tail -n 1 "$work/$host.said")" ;;
        *) say "$host: $(tail -n 1 "$work/$host.said")" ;;
        esac
        rm -f "$work/$host.failed"
    done
    [ -z "$bad" ]
}
checks=()

# shellcheck disable=SC2317,SC2329 # a signal calls it
signal_ranks() {
    local host
    for host in "${hosts[@]}"; do
        run_on "$host" INT "$mark" <<<"$signal_marked" >/dev/null 2>&1 &
    done
}

read_hosts
check_hosts || exit 1
ranks=$(wc -l <"$work/ranks")
if [ -n "$check" ]; then
    say "ready: $(plural "${#hosts[@]}" machine) for $(plural "$ranks" rank)"
    exit 0
fi
resume_of "$@"
mpi_flags "$work/ranks"
repeat "$restarts" \
    "$mpirun" -n "$ranks" "${flags[@]}" env TRIREME_MARK="$mark" "$TRIREME" train "$@" "${resume[@]}"
case $code in
0 | 75 | 130) ;;
*)
    [ -n "$stopped" ] || ! check_hosts || say "ended with code $code; all machines answer, so the lines above say what failed"
    ;;
esac
exit "$code"
