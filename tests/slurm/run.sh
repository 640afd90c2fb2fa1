#!/bin/bash
# Tests the job scripts under a private Slurm: `make test-slurm`. Needs root. Environment: TRIREME is the program, SOURCE has the four files
# of Fashion-MNIST.
#
#   tests/slurm/run.sh                 # all tests, six minutes
#   tests/slurm/run.sh doctor sweep    # only these
#
# Trains LeNet for a few steps on two tasks with one core each, on the first 2,000 images, and scores 200 images.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TRIREME_HOME=$(cd "$here/../.." && pwd)
: "${TRIREME:=$TRIREME_HOME/target/release/trireme}"
export TRIREME_HOME TRIREME
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader
# shellcheck source=tests/support/script.sh
. "$here/../support/script.sh"
# shellcheck source=tests/slurm/cluster.sh
. "$here/cluster.sh"
# shellcheck source=tests/support/small_data.sh
. "$here/../support/small_data.sh"

if [ "$(id -u)" != 0 ]; then
    skip slurm 'it needs root for slurmd and device files'
    exit 0
fi
recipe=$TRIREME_HOME/recipes/fashion-mnist-lenet.toml
scripts=$TRIREME_HOME/jobscripts
WORK=$(mktemp -d "${TMPDIR:-/tmp}/trireme-slurm-work-XXXXXX")
cd "$WORK"

end() {
    local code=$?
    [ "$code" = 0 ] || tail -n 30 "$WORK"/*.log "$CLUSTER"/slurm*.log >&2 || true
    stop_cluster
    rm -rf "$WORK"
    exit "$code"
}
trap end EXIT
trap 'exit 130' INT TERM

# submit SCRIPT ARGUMENTS...: submits two tasks with one core each and prints the id of the job. The array `options` has more sbatch
# options.
options=()
submit() {
    local script=$1
    shift
    sbatch --parsable --ntasks=2 --cpus-per-task=1 --job-name=test "${options[@]}" "$scripts/$script" "$@"
}

# train OUT ARGUMENTS...: submits train.sbatch with small batches. With two workers and an integer codec, the bits do not depend on the
# ranks.
BATCH=16
train() {
    local out=$1
    shift
    submit train.sbatch "$recipe" --data "$DATA" --out "$WORK/$out" \
        --set epochs=500 --set batch="$BATCH" --set workers=2 --set reduce.codec=exact "$@"
}

# field ID NAME: prints a field of a job, such as JobState.
field() {
    scontrol show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1
}

# ended ID: succeeds if the step daemons of the job have ended. A remaining daemon would still hold the PMIx socket of the step, which a
# restart needs.
ended() {
    ! pgrep -f "^slurmstepd: \[$1\." >/dev/null
}

# finish ID STATE SECONDS: waits until the job is over. Slurm delays a requeued job for two minutes; this function shortens the delay to the
# end of the job.
finish() {
    local id=$1 expected=$2 state='' until=$((SECONDS + $3))
    while [ $SECONDS -lt $until ]; do
        state=$(field "$id" JobState)
        case $state in
        PENDING)
            # each task of an array has its own JobId
            if [ "$(field "$id" Restarts)" != 0 ] && ended "$(field "$id" JobId)"; then
                # a node refuses a job that was created in the same second in which it was killed there
                sleep 1.1
                scontrol update "jobid=$id" StartTime=now 2>/dev/null || true
            fi
            ;;
        RUNNING | COMPLETING | REQUEUED) ;;
        "$expected") return 0 ;;
        *) break ;;
        esac
        sleep 0.3
    done
    fail "job $id is $state instead of $expected"
}

# steps OUT: prints the number of steps in the log.
steps() {
    { grep '"event":"step"' "$WORK/$1/metrics.jsonl" 2>/dev/null || true; } | wc -l
}

has_steps() { [ "$(steps "$1")" -ge "$2" ]; }
reach() { until_true 60 has_steps "$@" || fail "$1 has not come to step $2"; }

same_bits() {
    cmp "$WORK/$1/model.h5" "$WORK/$2/model.h5" || fail "$2 is not $1 to the bit"
}

test_train() {
    local id
    id=$(train whole --max-steps 40)
    finish "$id" COMPLETED 300
    [ -s whole/model.h5 ] || fail 'no model.h5'
    grep '"event":"start"' whole/metrics.jsonl | grep -q '"ranks":2[,}]' || fail 'not two ranks'
    [ "$(steps whole)" = 40 ] || fail "$(steps whole) steps instead of 40"
    id=$(submit eval.sbatch "$WORK/whole/model.h5" --data "$DATA" --json)
    finish "$id" COMPLETED 120
    grep -q '"count": *200' "test-$id.log" || fail "no score in: $(cat "test-$id.log")"
    id=$(submit data.sbatch info "$DATA")
    finish "$id" COMPLETED 120
    grep -qE '2,?000' "test-$id.log" || fail "no data set in: $(cat "test-$id.log")"
}

test_sweep() {
    local id
    options=(--array=0-1)
    id=$(OUT=$WORK/sweep submit sweep.sbatch "$recipe" seed=3 'seed=4 schedule.base_lr=0.01' -- --data "$DATA" --max-steps 3)
    options=()
    finish "${id}_0" COMPLETED 300
    finish "${id}_1" COMPLETED 300
    grep -q '^seed = 3' sweep-0/recipe.toml || fail 'seed of the first run'
    grep -q '^seed = 4' sweep-1/recipe.toml || fail 'seed of the second run'
    grep -q '^base_lr = 0.01' sweep-1/recipe.toml || fail 'rate of the second run'
    [ -s sweep-0/model.h5 ] || fail 'model of the first run'
    [ -s sweep-1/model.h5 ] || fail 'model of the second run'
    options=(--array=0-1)
    id=$(OUT=$WORK/grid submit sweep.sbatch "$recipe" --grid seed=3,4 --data "$DATA" -- --max-steps 3)
    options=()
    finish "${id}_1" COMPLETED 300
    [ -s grid/seed=4/model.h5 ] || fail 'model of the second combination'
    # Every stopped task continues. The first one is special: Slurm gives it the job id of the whole array.
    options=(--array=0-1)
    id=$(OUT=$WORK/stop submit sweep.sbatch "$recipe" seed=3 seed=4 -- --data "$DATA" --max-steps 200 --set batch="$BATCH" --set epochs=500)
    options=()
    local task
    for task in 0 1; do
        reach "stop-$task" 10
        scancel --batch --signal=USR1 "${id}_$task"
    done
    for task in 0 1; do
        finish "${id}_$task" COMPLETED 300
        [ "$(field "${id}_$task" Restarts)" = 1 ] || fail "task $task: $(field "${id}_$task" Restarts) restarts instead of 1"
        [ "$(steps "stop-$task")" = 200 ] || fail "task $task: $(steps "stop-$task") steps instead of 200"
    done
}

# diagnose WORDS SRUN-OPTIONS...: checks that `doctor` with these srun options fails and prints WORDS, a regular expression.
diagnose() {
    local words=$1 text code=0
    shift
    text=$(timeout 60 srun --ntasks=2 --cpus-per-task=1 --kill-on-bad-exit=0 "$@" doctor 2>&1) || code=$?
    [ "$code" != 0 ] || fail "doctor finds nothing wrong with srun $*: $text"
    grep -qE "^(problem|warning:) .*$words" <<<"$text" || fail "doctor does not say \"$words\" under srun $*: $text"
}

test_doctor() {
    diagnose 'srun started 2 tasks without any PMI.*--mpi=pmix' --mpi=none "$TRIREME"
    diagnose 'rank 0 shares its core \[0\].*--cpus-per-task' --mpi=pmix taskset --cpu-list 0 "$TRIREME"
    diagnose '2 ranks on .* share 1 GPU.*--gpu-bind=none' --mpi=pmix --gres=gpu:1 "$TRIREME"
    diagnose 'OMP_PROC_BIND=close' --mpi=pmix --export=ALL,OMP_PROC_BIND=close "$TRIREME"
    srun --ntasks=2 --mpi=pmix --gpus-per-task=1 "$TRIREME" doctor >good.log 2>&1 || fail "doctor: $(cat good.log)"
    grep -q 'no problem found' good.log || fail "doctor: $(cat good.log)"
}

# A run is stopped by a signal through Slurm. It must write a checkpoint, be requeued, resume, and give the same model as a run without a
# stop.
test_requeue() {
    local id
    id=$(train plain --max-steps 60)
    finish "$id" COMPLETED 300
    id=$(train stopped --max-steps 60)
    reach stopped 10
    scancel --batch --signal=USR1 "$id"
    finish "$id" COMPLETED 300
    [ "$(field "$id" Restarts)" = 1 ] || fail "$(field "$id" Restarts) restarts instead of 1"
    [ "$(steps stopped)" = 60 ] || fail "$(steps stopped) steps in the log instead of 60"
    same_bits plain stopped
}

# A signal that comes before srun, while env.sh still loads modules, also requeues the job.
test_early() {
    local id
    mkdir slow
    cp -r "$scripts" slow
    # Slurm may signal the sleep, too
    echo "touch '$WORK/begun'; sleep 5 || true" >>slow/jobscripts/env.sh
    id=$(TRIREME_HOME=$WORK/slow train early --max-steps 3)
    until_true 60 test -e begun
    scancel --batch --signal=USR1 "$id"
    finish "$id" COMPLETED 300
    [ "$(field "$id" Restarts)" = 1 ] || fail "$(field "$id" Restarts) restarts instead of 1"
    [ "$(grep -c '"event":"start"' early/metrics.jsonl)" = 1 ] || fail 'it trained before the restart'
}

# local.sh: after TERM, a run writes a checkpoint and does not restart. After its time limit it restarts as often as -r allows.
test_local() {
    local id code=0 arguments
    arguments=("$recipe" --data "$DATA" --threads 1 --set epochs=500 --set batch="$BATCH" --set workers=2
        --set reduce.codec=exact --max-steps 60)
    "$scripts/local.sh" "${arguments[@]}" --out whole-local >local.log 2>&1 || fail "local.sh: code $?"
    "$scripts/local.sh" -r 9 "${arguments[@]}" --out local >local.log 2>&1 &
    id=$!
    reach local 10
    kill -TERM "$id"
    # a second TERM, which would crash Open MPI's mpirun, has no effect
    sleep 0.05
    kill -TERM "$id" 2>/dev/null || true
    wait "$id" || code=$?
    [ "$code" = 75 ] || fail "local.sh ends with $code instead of 75 after TERM"
    ! grep -q 'Segmentation fault\|Signal: ' local.log || fail 'mpirun crashed after a second TERM'
    [ ! -e local/model.h5 ] || fail 'TERM stopped nothing'
    "$scripts/local.sh" -r 9 "${arguments[@]}" --out local >local.log 2>&1 || fail "local.sh: code $?"
    same_bits whole-local local
    code=0
    "$scripts/local.sh" -r 1 "$recipe" --data "$DATA" --out limited-local --threads 1 --set workers=2 --set epochs=500 \
        --time-limit 5s >local.log 2>&1 || code=$?
    [ "$code" = 75 ] || fail "local.sh ends with $code instead of 75 after its restarts"
    grep -q '0 restarts left' local.log || fail 'no restart after --time-limit'
}

# scancel ends a run for good: it writes a checkpoint and is not requeued.
test_cancel() {
    local id
    id=$(train cancelled)
    reach cancelled 5
    scancel "$id"
    finish "$id" CANCELLED 60
    sleep 3
    [ "$(field "$id" JobState)" = CANCELLED ] || fail 'a cancelled job came back'
    ls cancelled/checkpoints/*.h5 >/dev/null || fail 'no checkpoint'
}

requeued() { [ "$(field "$1" JobState),$(field "$1" Restarts)" = PENDING,1 ]; }

# A training that Slurm's time limit stops. So that this works at any speed, the training has no last step before the limit. Afterwards its
# last step is set to 30 more steps. Slurm's limits are in minutes, and it checks them every half minute.
test_limit() {
    local id
    cat >some-steps <<END
#!/bin/sh
[ ! -s "$WORK/last-step" ] || set -- "\$@" --max-steps "\$(cat "$WORK/last-step")"
exec "$TRIREME" "\$@"
END
    chmod +x some-steps
    options=(--time=1 --signal=B:USR1@20)
    id=$(TRIREME=$WORK/some-steps train limited)
    options=()
    until_true 150 requeued "$id" || fail 'the time limit stopped nothing'
    [ ! -e limited/model.h5 ] || fail 'a model, though the time limit struck'
    echo $(($(steps limited) + 30)) >last-step
    finish "$id" COMPLETED 600
    echo "    stopped at step $(($(cat last-step) - 30)), restarts: $(field "$id" Restarts)"
    id=$(TRIREME=$WORK/some-steps train unlimited)
    finish "$id" COMPLETED 600
    same_bits unlimited limited
}

DATA=$WORK/data
make_data "$DATA"
start_cluster
[ $# -gt 0 ] || set -- train sweep doctor requeue early cancel local limit
for name in "$@"; do
    echo "slurm: $name"
    "test_$name"
done
echo 'slurm: all passed'
