#!/usr/bin/env bash
# Runs ThreadSanitizer on the threads of the loader, the thread that writes checkpoints and the thread that owns MPI, with a replacement for
# MPI. std is precompiled without it: std.c describes std's locks, and tsan.supp lists false reports.
set -euo pipefail
cd "$(dirname "$0")/../.."

cargo=${CARGO:-cargo}
host=$(rustc -vV | sed -n 's/^host: //p')
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The mangled names of std's functions, which change with each version of Rust.
mkdir -p target-tsan
library=$(echo "$(rustc --print sysroot)/lib/rustlib/$host/lib"/libstd-*.so)
names=() wraps=''
wrap() {
	local symbol
	symbol=$(nm -D --defined-only "$library" | awk '{ print $3 }' | grep -E "$2\$") || { echo "no $1 in $library" >&2; exit 1; }
	names+=("-D$1=$symbol")
	wraps+=" -Clink-arg=-Wl,--wrap=$symbol"
}
wrap MUTEX_LOCK_CONTENDED 'mutex5futex.*14lock_contended'
wrap RWLOCK_READ_CONTENDED '14read_contended'
wrap RWLOCK_WRITE_CONTENDED '15write_contended'
wrap CONDVAR_WAIT '7condvar5futex.*4wait'
wrap CONDVAR_WAIT_TIMEOUT '7condvar5futex.*12wait_timeout'
wrap ONCE_CALL '4once5futex.*4Once4call'
wrap ONCE_WAIT '4onceN.*4Once4wait'
cc -O1 -g -Wall -Wextra -Werror -fPIC -c "${names[@]}" -o target-tsan/std.o tests/sanitize/std.c
mpicc -O1 -g -Wall -Wextra -Werror -fPIC -shared -o "$folder/mpi.so" tests/sanitize/mpi.c

export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target-tsan CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_INCREMENTAL=0
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer -Clink-arg=$PWD/target-tsan/std.o$wraps"
export TSAN_OPTIONS="suppressions=$PWD/tests/sanitize/tsan.supp exitcode=66"

"$cargo" test --locked --target "$host" -p loaders --test loaders -- batches:: faults:: storage::

"$cargo" build --locked --target "$host" --bin trireme
trireme=$PWD/target-tsan/$host/debug/trireme

# Two classes of a few pictures, decoded by two loader threads.
for class in first second; do
	mkdir -p "$folder/pictures/$class"
	for copy in 1 2 3 4 5 6; do
		for picture in 420.jpg 422.jpg 444.jpg rgb.png; do
			cp "loaders/tests/golden/pictures/$picture" "$folder/pictures/$class/$copy-$picture"
		done
	done
done
# The end of std::thread::scope is inside std, so all work of its threads would be reported as races. Conversion is not tested here.
TSAN_OPTIONS="$TSAN_OPTIONS report_bugs=0" "$trireme" data convert folder "$folder/pictures" "$folder/data" --shards 3

cat >"$folder/recipe.toml" <<'RECIPE'
model = "resnet20"
data = "given with --data"
epochs = 4
batch = 8
workers = 2
eval_split = "train"

[optimizer]
kind = "sgd"
momentum = 0.9

[schedule]
kind = "constant"
base_lr = 0.01

[augment]
train = ["random_resized_crop(32)", "flip", "normalize"]
eval = ["resize(36)", "center_crop(32)", "normalize"]

[reduce]
codec = "exact"

[loader]
threads = 2

[checkpoint]
every = "2 steps"
RECIPE

# Mapped and read records, then a resume from the last checkpoint.
for io in mmap read; do
	train=("$trireme" train "$folder/recipe.toml" --data "$folder/data" --out "$folder/$io" --threads 1 --set "loader.io=$io")
	LD_PRELOAD="$folder/mpi.so" "${train[@]}" --max-steps 14
	LD_PRELOAD="$folder/mpi.so" "${train[@]}" --resume auto
done
echo 'no race found'
