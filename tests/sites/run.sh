#!/bin/bash
# Tests the job scripts for PBS, LSF, Flux, machines without a scheduler and a single machine, with replacements for the commands of the
# schedulers, ssh and mpirun (tests/sites/stubs): `make test-sites`, less than a minute.
#
#   tests/sites/run.sh              # all tests
#   tests/sites/run.sh lsf hosts    # only these
#
# The replacements react to signals and wrong requests as the manuals describe. Real schedulers were not available.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/support/script.sh
. "$root/tests/support/script.sh"
scripts=$root/jobscripts
SITES=$(mktemp -d "${TMPDIR:-/tmp}/trireme-sites-XXXXXX")
PATH=$here/stubs:$PATH
export SITES PATH TRIREME=$here/stubs/trireme
unset SLURM_JOB_ID RANKS THREADS GPUS TIME WARN DEVICE STAGE NODE_DISK MAX_RESTARTS RESTARTS MPIRUN MPIRUN_FLAGS SSH TRIREME_HOME
unset STEPS SLOW FAIL

end() {
    local code=$? pid
    shopt -s nullglob
    [ "$code" = 0 ] || tail -n 20 "$SITES"/*.log "$SITES"/jobs/*/log >&2
    # every process of this test except this script has SITES in its environment
    for pid in $(processes_with "SITES=$SITES"); do kill -s KILL "$pid" 2>/dev/null || true; done
    rm -rf "$SITES"
    exit "$code"
}
trap end EXIT
trap 'exit 130' INT TERM

# clean: removes the jobs and notes of the previous test.
clean() {
    rm -rf "${SITES:?}"/*
    mkdir "$SITES/work"
    cd "$SITES/work"
}

# noted WORDS: succeeds if a rank has recorded these words. ended JOB: succeeds if the job has ended.
noted() { grep -q -- "$1" "$SITES/ranks.log"; }
ended() { [ -s "$SITES/jobs/$1/code" ]; }

# started: waits until both ranks have installed their signal handlers.
started() {
    until_true 60 test -e out/ready-2
}

# job JOB FILE WORDS: checks that the file of the job contains the words.
job() {
    grep -q -- "$3" "$SITES/jobs/$1/$2" || fail "no \"$3\" in $2 of job $1: $(cat "$SITES/jobs/$1/$2")"
}

# code JOB CODE: checks the exit code of the job.
code() {
    until_true 60 ended "$1"
    [ "$(<"$SITES/jobs/$1/code")" = "$2" ] || fail "job $1 ended with $(<"$SITES/jobs/$1/code") instead of $2: $(cat "$SITES/jobs/$1/log")"
}

# A word with blanks, quotes and a dollar sign must reach trireme unchanged.
# shellcheck disable=SC2016
odd='augment.train=["flip", $x  '"'y']"

# goes_on LAST [THREADS]: checks that the ranks have stopped with a checkpoint and resumed from it with the same arguments. LAST is the id
# of the last job. THREADS are the expected options for compute threads, by default `--threads 4`, and empty with a GPU.
goes_on() {
    until_true 60 test -s out/model
    noted 'checkpoint 0 ' || fail 'no checkpoint'
    grep -qE 'done [1-9]' "$SITES/ranks.log" || fail "not resumed: $(cat "$SITES/ranks.log")"
    [ "$(grep -cF -- "train recipe.toml --out out --set $odd --device auto${2- --threads 4} --resume auto" "$SITES/ranks.log")" = 4 ] ||
        fail "not two ranks twice, or other words: $(cat "$SITES/ranks.log")"
}

train=(train recipe.toml --out out --set "$odd")

# In the tests of pbs, lsf and flux, the first job is warned 3 s after its start and killed 27 s later. Within this time the ranks must have
# started and stopped, even on a busy machine.

test_syntax() {
    local file files
    cd "$root"
    files=(.ci/run {build,fuzz,jobscripts,packaging}/*.sh jobscripts/*.sbatch tests/*.sh tests/*/*.sh tests/sites/stubs/*)
    for file in "${files[@]}"; do bash -n "$file"; done
    if command -v shellcheck >/dev/null; then
        shellcheck -x "${files[@]}"
    else
        skip 'sites: syntax' 'shellcheck over the scripts: it is not installed'
    fi
}

test_pbs() {
    [ "$(TIME=30 WARN=1797 "$scripts/pbs.sh" -q workq -- "${train[@]}")" = 1.server ] || fail "no id"
    job 1 arguments '-q workq'
    job 1 arguments 'select=2:ncpus=4:mpiprocs=1:ompthreads=4 -l walltime=1800'
    code 1 75
    job 1 log 'continues as job 2.server'
    goes_on
    code 2 0
    cmp <(cat "$SITES/jobs/1/arguments") "$SITES/jobs/2/arguments" || fail 'the second job asks for something else'
    job 2 script 'RESTARTS=1'
    [ "$(cat "$SITES/hostfile")" = $'n0\nn1' ] || fail "hostfile: $(cat "$SITES/hostfile")"
    grep -q -- '-n 2 --bind-to none' "$SITES/mpirun.log" || fail "mpirun: $(cat "$SITES/mpirun.log")"
    clean
    # qsig continues the run; the limit of restarts and a node that refuses a job do not
    MAX_RESTARTS=0 "$scripts/pbs.sh" -- "${train[@]}" >/dev/null
    started
    scheduler signal 1 USR1
    code 1 75
    job 1 log 'restarted 0 times, which is the limit'
    clean
    "$scripts/pbs.sh" -- "${train[@]}" >/dev/null
    started
    touch "$SITES/no-qsub"
    scheduler signal 1 USR1
    code 1 75
    job 1 log 'refused the next job'
    [ ! -e "$SITES/jobs/2" ] || fail 'a second job'
    clean
    # qdel sends TERM to all processes
    "$scripts/pbs.sh" -- "${train[@]}" >/dev/null
    started
    scheduler signal 1 TERM
    until_true 60 ended 1
    [ ! -e "$SITES/jobs/2" ] || fail 'a deleted job came back'
}

test_lsf() {
    TIME=30 WARN=1620 "$scripts/lsf.sh" -q normal -- "${train[@]}" | grep -q 'Job <1>' || fail "no id"
    job 1 arguments '-r -Q 75 -n 8 -R span.block=4. -W 30 -wa USR1 -wt 27 -q normal'
    code 1 0
    [ "$(cat "$SITES/jobs/1/codes")" = $'75\n0' ] || fail "codes: $(cat "$SITES/jobs/1/codes")"
    goes_on
    [ "$(cat "$SITES/hostfile")" = $'n17\nn18' ] || fail "hostfile: $(cat "$SITES/hostfile")"
    [ -z "$(ls -A .trireme* 2>/dev/null)" ] || fail 'a counter is left'
    clean
    # bkill sends INT to all processes and TERM later. The exit code may be mpirun's, but the job must not be restarted.
    "$scripts/lsf.sh" -R 'span[hosts=1]' -- "${train[@]}" >/dev/null
    started
    scheduler signal 1 INT
    sleep 1
    scheduler signal 1 TERM 2>/dev/null || true
    until_true 60 ended 1
    ! grep -qx 75 "$SITES/jobs/1/codes" || fail "codes: $(cat "$SITES/jobs/1/codes")"
    clean
    # the script must ignore a file with anything but a number, because another user may have created it
    # shellcheck disable=SC2016
    echo 'RANKS[$(touch broken)]' >.trireme-1.restarts
    MAX_RESTARTS=0 "$scripts/lsf.sh" -- "${train[@]}" >/dev/null
    started
    scheduler signal 1 USR1
    code 1 143
    job 1 log 'restarted 0 times, which is the limit'
    [ ! -e broken ] || fail 'the counter was run as a command'
    clean
    # 6 slots on each of two machines have room for one rank with 4 slots each
    RANKS=3 "$scripts/lsf.sh" -- "${train[@]}" >/dev/null
    code 1 2
    job 1 log 'LSF gave slots for 2 of 3 ranks, because a rank needs THREADS=4 slots on one machine: n17 6 n18 6'
}

test_flux() {
    [ "$(TIME=30 WARN=1620 GPUS=1 "$scripts/flux.sh" -q pbatch -- "${train[@]}")" = f1 ] || fail "no id"
    job 1 arguments '-n 2 -c 4 -t 30m --signal=USR1@1620s -g 1 -q pbatch'
    code 1 75
    job 1 log 'continues as job f2'
    goes_on f2 ''
    code 2 0
    cmp <(cat "$SITES/jobs/1/arguments") "$SITES/jobs/2/arguments" || fail 'the second job asks for something else'
    grep -q -- '-n 2 -c 4 -g 1 .*trireme train' "$SITES/flux-run.log" || fail "flux run: $(cat "$SITES/flux-run.log")"
    clean
    # flux cancel sends TERM to all processes
    "$scripts/flux.sh" -- "${train[@]}" >/dev/null
    started
    scheduler signal 1 TERM
    until_true 60 ended 1
    [ ! -e "$SITES/jobs/2" ] || fail 'a cancelled job came back'
}

# A sweep is a single process. It continues after the warning, but not after a signal that stops it for good.
test_sweeps() {
    local kind signal expected
    for kind in pbs lsf flux; do
        clean
        "$scripts/$kind.sh" -- sweep recipe.toml --out out >/dev/null
        until_true 60 test -e out/ready-1
        signal=TERM expected=75
        [ "$kind" != lsf ] || signal=INT expected=143
        scheduler signal 1 "$signal"
        code 1 "$expected"
        job 1 log 'stopped for good'
        noted 'checkpoint 0 ' || fail "$kind: no checkpoint"
        noted 'sweep recipe.toml --out out -- --device auto --threads 4$' || fail "$kind: $(cat "$SITES/ranks.log")"
        [ ! -e "$SITES/jobs/2" ] || fail "$kind: a stopped sweep came back"
    done
    clean
    TIME=30 WARN=1797 "$scripts/pbs.sh" -- sweep recipe.toml --out out >/dev/null
    code 1 75
    code 2 0
    [ -s out/model ] || fail "the sweep did not continue: $(cat "$SITES/ranks.log")"
    clean
    STAGE=1 STEPS=3 "$scripts/pbs.sh" -- sweep recipe.toml --out out -- --max-steps 3 --device cpu >/dev/null
    code 1 0
    noted 'sweep recipe.toml --out out -- --max-steps 3 --device cpu --threads 4 --stage /tmp$' || fail "$(cat "$SITES/ranks.log")"
}

# Other subcommands: with MPI if trireme uses it, otherwise as a single process, without --resume, and not restarted.
test_commands() {
    local kind command i
    # each with its number of ranks
    local commands=('1 data verify d' '1 bench loader d' '2 bench allreduce' '2 doctor' '1 predict m d')
    for kind in pbs lsf flux; do
        clean
        for command in "${commands[@]}"; do
            # shellcheck disable=SC2086 # splits the command into words
            "$scripts/$kind.sh" -- ${command#* } >/dev/null
        done
        for ((i = 1; i <= ${#commands[@]}; i++)); do code "$i" 0; done
        # the warning would kill a command that does not expect it
        ! grep -q USR1 "$SITES/jobs/1/arguments" || fail "$kind: $(cat "$SITES/jobs/1/arguments")"
        for command in "${commands[@]}"; do
            [ "$(grep -c -- "${command#* }\$" "$SITES/ranks.log")" = "${command%% *}" ] || fail "$kind: $command: $(cat "$SITES/ranks.log")"
        done
        clean
        "$scripts/$kind.sh" -- predict m d --out t.csv >/dev/null
        code 1 0
        [ "$(grep -c -- 'predict m d --out t.csv --device auto --threads 4$' "$SITES/ranks.log")" = 2 ] ||
            fail "$kind: $(cat "$SITES/ranks.log")"
        DEVICE=cuda "$scripts/$kind.sh" -- predict m d >/dev/null
        code 2 0
        noted 'predict m d --device cuda$' || fail "$kind: $(cat "$SITES/ranks.log")"
        clean
        STAGE=1 NODE_DISK=/nvme "$scripts/$kind.sh" -- eval model.h5 --data d >/dev/null
        code 1 0
        [ "$(grep -c -- 'eval model.h5 --data d --device auto --threads 4 --stage /nvme$' "$SITES/ranks.log")" = 2 ] ||
            fail "$kind: $(cat "$SITES/ranks.log")"
        # an option on the command line replaces the script's own
        STAGE=0 DEVICE=cpu "$scripts/$kind.sh" -- eval model.h5 --threads=2 >/dev/null
        code 2 0
        STAGE=no "$scripts/$kind.sh" -- eval model.h5 >/dev/null
        code 3 2
        job 3 log 'STAGE=no: expected 0 or 1'
        [ "$(grep -c -- 'eval model.h5 --threads=2 --device cpu$' "$SITES/ranks.log")" = 2 ] || fail "$kind: $(cat "$SITES/ranks.log")"
        ! "$scripts/$kind.sh" train recipe.toml >said.log 2>&1 || fail "$kind: no -- is no mistake"
        grep -q "jobscripts/$kind.sh .*-- COMMAND" said.log || fail "$kind: $(cat said.log)"
    done
}

# refused CODE WORDS ARGUMENTS...: checks the exit code and the message of hosts.sh.
refused() {
    local expected=$1 words=$2 code=0
    shift 2
    SSH=ssh "$scripts/hosts.sh" "$@" >said.log 2>&1 || code=$?
    [ "$code" = "$expected" ] || fail "hosts.sh $* ends with $code instead of $expected: $(cat said.log)"
    [ -z "$words" ] || grep -qE -- "$words" said.log || fail "hosts.sh $* does not say \"$words\": $(cat said.log)"
}

test_hosts() {
    local name
    export PWD_OF_TEST=$PWD
    printf '%s\n' '# two' 'n17 slots=2' '' 'n18:1  # small' ' n19' >hosts
    refused 0 'ready: 3 machines for 4 ranks$' -c hosts
    echo n17 >one
    refused 0 'ready: 1 machine for 1 rank$' -c one
    refused 2 'does not accept --resume.*folder checkpoints of OUT' hosts recipe.toml --resume run
    TRIREME_CACHE=/c STEPS=3 refused 0 '' hosts recipe.toml --out out
    [ "$(cat "$SITES/hostfile")" = $'n17\nn17\nn18\nn19' ] || fail "hostfile: $(cat "$SITES/hostfile")"
    [ "$(grep -c 'train recipe.toml --out out --resume auto$' "$SITES/ranks.log")" = 4 ] || fail "$(cat "$SITES/ranks.log")"
    # the variables in env.sh and in this shell reach the other machines
    for name in OMP_PROC_BIND TRIREME_CACHE; do
        grep -q -- "-x $name " "$SITES/mpirun.log" || fail "$name is not passed: $(cat "$SITES/mpirun.log")"
    done
    printf '#!/bin/sh\necho "libmpi.so.40: cannot open shared object file" >&2\nexit 127\n' >broken
    chmod +x broken
    TRIREME=$PWD/broken refused 1 'n17: cannot start .*/broken: libmpi.so.40' -c hosts
    printf '%s\n' n17 dead bare >hosts
    refused 1 'dead: cannot be reached by ssh: .*Name or service not known' hosts recipe.toml
    grep -q 'bare: has no folder /nowhere' said.log || fail "$(cat said.log)"
    ! grep -q 'n17:' said.log || fail "n17 is blamed: $(cat said.log)"
    echo 'n17 many' >hosts
    refused 2 'n17 many" is not a machine with a number of ranks' hosts recipe.toml
    : >hosts
    refused 2 'names no machine' hosts recipe.toml
    refused 2 'missing: cannot be read' missing recipe.toml
    # a machine that fails during the run
    printf '%s\n' n17 n18 >hosts
    FAIL=3 STEPS=30 refused 3 'all machines answer' hosts recipe.toml --out failing
    (until_true 60 test -d gone && touch "$SITES/down-n18") &
    FAIL=3 STEPS=50 refused 3 'n18: cannot be reached by ssh: .*No route to host' hosts recipe.toml --out gone
    wait "$!"
}

# stops SCRIPT...: checks the effect of one, two and three Ctrl-C under such a script. Its mpirun is MPIRUN.
stops() {
    local pid code count expected left
    for count in 1 2 3; do
        rm -rf out "$SITES/ranks.log"
        touch "$SITES/slow"
        env --default-signal=INT "$@" recipe.toml --out out >said.log 2>&1 &
        pid=$!
        started
        kill -s INT "$pid"
        until_true 60 noted 'got USR1'
        [ "$count" = 1 ] || { kill -s INT "$pid"; until_true 60 noted 'got INT'; }
        [ "$count" = 3 ] || rm "$SITES/slow"
        [ "$count" != 3 ] || kill -s INT "$pid"
        code=0
        wait "$pid" || code=$?
        ! grep -qE 'Segmentation fault|Signal: ' said.log || fail "mpirun crashed after Ctrl-C $count times: $(cat said.log)"
        expected=75 left=yes
        [ "$count" != 3 ] || expected=130 left=no
        [ "$code" = "$expected" ] || fail "$*: $code instead of $expected after Ctrl-C $count times: $(cat said.log)"
        [ "$left" = "$([ ! -s out/checkpoint ] && echo no || echo yes)" ] || fail "$*: checkpoint after Ctrl-C $count times"
        rm -f "$SITES/slow"
    done
}

test_stops() {
    # a single machine: with two names for this machine every rank would be signalled twice
    echo 'n17 2' >hosts
    SSH=ssh stops "$scripts/hosts.sh" -r 9 hosts
    stops "$scripts/local.sh" -r 9
    # USR1 is not Ctrl-C: the run continues by itself
    rm -rf out "$SITES/ranks.log"
    "$scripts/local.sh" -r 9 recipe.toml --out out >said.log 2>&1 &
    started
    kill -s USR1 "$!"
    wait "$!" || fail "local.sh: code $?: $(cat said.log)"
    grep -q '8 restarts left' said.log || fail "$(cat said.log)"
    [ -s out/model ] || fail "no model: $(cat said.log)"
}

# refuses WORDS ARGUMENTS...: checks that the command ends with code 2 and prints WORDS.
refuses() {
    local words=$1 code=0
    shift
    "$@" >said.log 2>&1 || code=$?
    [ "$code" = 2 ] || fail "$*: code $code instead of 2: $(cat said.log)"
    grep -q -- "$words" said.log || fail "$*: $(cat said.log)"
}

# Wrong numbers of ranks, and Slurm scripts that run outside of a Slurm job, must be refused.
test_mistakes() {
    local script ranks
    for ranks in 0 x -1 2x; do
        refuses "-n $ranks: expected a number of ranks >= 1" "$scripts/local.sh" -n "$ranks" recipe.toml
    done
    refuses '-r x: expected a number of restarts >= 0' "$scripts/local.sh" -r x recipe.toml
    refuses '-r x: expected a number of restarts >= 0' "$scripts/hosts.sh" -r x hosts recipe.toml
    for script in train eval data sweep; do
        refuses "$script.sbatch: not in a job of Slurm" env -u SLURM_SUBMIT_DIR bash "$scripts/$script.sbatch" x
    done
}

# Stops a run under the mpirun that is installed on this machine.
test_mpirun() {
    local real
    real=$(PATH=${PATH#*:} command -v mpirun) || fail 'mpirun is missing; run: make setup'
    export MPIRUN=$real OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    stops "$scripts/local.sh"
    unset MPIRUN
}

[ $# -gt 0 ] || set -- syntax pbs lsf flux sweeps commands hosts stops mistakes mpirun
for name in "$@"; do
    echo "sites: $name"
    clean
    "test_$name"
done
echo "sites: all passed in $SECONDS s"
