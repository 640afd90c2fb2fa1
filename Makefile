# trireme: begin with `make demo` and `make test`. `make help` lists all targets.
#
# Existing packages, binaries, data sets and the model of the demo are not made again.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup build install install-files uninstall demo test test-all test-faults test-networks test-digests test-interop test-bands test-report \
	test-slurm test-nodes test-aarch64 test-sites test-install test-readme test-bands-page test-many-ranks test-mpich build-bundled test-bundled \
	setup-cuda-check test-cuda-check setup-cuda-plans test-cuda-plans test-gpu \
	bench-ops bench-peers bench-bands bench-gpu pack-gpu test-pack-gpu \
	pack test-pack image test-image deb test-deb dist test-dist test-recipes fuzz \
	soak sanitize sanitize-orders sanitize-memory sanitize-threads bench bench-bf16 bench-change bench-loader lint check-aarch64 deny doc clean

CARGO ?= cargo
MPIRUN ?= mpirun
RANKS ?= 2
PYTHON ?= python3

BIN := $(or $(CARGO_TARGET_DIR),target)/release/trireme
FASHION_MNIST := /usr/share/datasets/fashion-mnist
DATA := data/fashion-mnist
RUN := runs/demo
RECIPE := recipes/fashion-mnist-lenet.toml

# Packages to build and run: MPI, HDF5, oneDNN, the tools that bindgen needs to read their headers, and the images of the demo.
PACKAGES := openmpi-bin libopenmpi-dev libhdf5-dev libdnnl-dev libclang-dev cmake nasm pkg-config dataset-fashion-mnist

# For `make fuzz`: builds libjpeg-turbo with the address sanitizer.
FUZZ_PACKAGES := clang-14 libclang-rt-14-dev

# For `make test-slurm` and `make test-mpich`. MPICH can be installed together with Open MPI, because its files have suffixes.
SLURM_PACKAGES := slurmctld slurmd slurm-client slurm-wlm-basic-plugins libpmix-dev
MPICH_PACKAGES := mpich libmpich-dev

# For `make test-nodes`. Debian may start an sshd when it installs openssh-server.
NODES_PACKAGES := openssh-server openssh-client iproute2 procps

# For `make test-aarch64`: a cross compiler, Debian's packages for arm64 and an emulator.
AARCH64_PACKAGES := mmdebstrap qemu-user-static gcc-aarch64-linux-gnu g++-aarch64-linux-gnu

# The processor to pack for: x86_64 or aarch64. If it is not this machine's, the program is cross-compiled and emulated.
ARCH ?= $(shell uname -m)
CROSS := $(filter-out $(shell uname -m),$(ARCH))

# For packing, and for creating a minimal Debian.
PACK_PACKAGES := patchelf python3-pip xz-utils $(if $(CROSS),$(AARCH64_PACKAGES))
BARE_PACKAGES := debootstrap

# Open MPI refuses to run as root unless both are set. MPICH ignores these variables.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1

# $(call mpi_flags,RANKS): flags that let ranks move between cores, and more ranks than cores. Only Open MPI needs them.
mpi_flags = $$($(MPIRUN) --version 2>/dev/null | grep -q 'Open MPI\|OpenRTE' && { echo --bind-to none; \
	[ "$$(nproc)" -ge $(1) ] || echo --oversubscribe; } || true)

# $(call install,PACKAGES): installs the missing packages with apt-get.
define install
missing=''; for package in $(1); do \
		[ "$$(dpkg-query -W -f '$${db:Status-Abbrev}' $$package 2>/dev/null | cut -c1-2)" = ii ] || missing="$$missing $$package"; \
	done; \
	command -v cc >/dev/null && command -v g++ >/dev/null || missing="$$missing build-essential"; \
	[ -n "$$missing" ] || exit 0; \
	echo "installing$$missing"; \
	root=''; [ "$$(id -u)" = 0 ] || root=sudo; \
	[ -z "$$root" ] || command -v sudo >/dev/null || { echo "this needs root or sudo to install:$$missing" >&2; exit 1; }; \
	install="$$root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends$$missing"; \
	log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	$$install >"$$log" 2>&1 || { $$root apt-get -qq update && $$install >"$$log" 2>&1; } || { cat "$$log" >&2; exit 1; }
endef

help: ## list all targets
	@echo 'trireme: trains image classifiers data-parallel over MPI'
	@echo
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: ## install missing Debian packages (root or sudo)
	@$(call install,$(PACKAGES))

build: ## build target/release/trireme
	@command -v $(CARGO) >/dev/null || \
		{ echo 'no cargo; install Rust from https://rustup.rs. To install an existing build: make install-files' >&2; exit 1; }
	@$(CARGO) build --release --locked || { echo 'the build failed; if a library is missing, run: make setup' >&2; exit 1; }

# Destination of `make install`. Shells other than bash pass on ~ unexpanded.
PREFIX ?= /usr/local
DESTDIR ?=
AT = $(patsubst ~/%,$(HOME)/%,$(PREFIX))

install: ## install program, man pages, completions, job scripts and recipes: PREFIX=~/.local; DESTDIR= for packagers
	@$(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory install-files

install-files: ## the same for an existing build, such as that of make build-bundled, without Rust: sudo make install-files
	@DESTDIR='$(DESTDIR)' build/install.sh install '$(BIN)' '$(AT)'

uninstall: ## remove the files that `make install` installed in PREFIX=~/.local, but keep an edited env.sh
	@DESTDIR='$(DESTDIR)' build/install.sh uninstall '$(AT)'

demo: ## train LeNet on Fashion-MNIST for one epoch with two ranks, and score it
	@$(MAKE) --no-print-directory setup
	@$(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory $(RUN)/model.h5
	@echo
	@echo "score of $(RUN)/model.h5 on the 10,000 test images:"
	@$(BIN) eval $(RUN)/model.h5 --data $(DATA) | head -n 1
	@[ "$$(grep -c '"event":"start"' $(RUN)/metrics.jsonl)" != 1 ] || \
		sed -n 's/.*"event":"end".*"seconds":\([0-9]*\.\?[0-9]\?\).*/training took \1 s on $(RANKS) ranks/p' $(RUN)/metrics.jsonl
	@echo "metrics: $(RUN)/metrics.jsonl"
	@[ -f $(RUN)/boot.png ] || $(BIN) data extract $(DATA) 0 --split test -o $(RUN)/boot.png
	@echo
	@echo 'Try next:'
	@echo '  $(BIN) predict $(RUN)/model.h5 $(RUN)/boot.png      # or your own: 28x28, grey on black'
	@echo '  $(MPIRUN) -n 2 $(BIN) train $(RECIPE) --out runs/whole    # all three epochs'
	@echo '  $(BIN) train --help                                      # every key of a recipe'

$(DATA)/dataset.json:
	@[ -d $(FASHION_MNIST) ] || { echo 'no package dataset-fashion-mnist; run: make setup' >&2; exit 1; }
	@mkdir -p $(dir $(DATA))
	@$(BIN) data convert fashion-mnist $(FASHION_MNIST) $(DATA) --shards 16

# A newer data set or recipe does not cause a new training: an existing model stays until `make clean`. An unfinished demo continues, unless
# its recipe or data set has changed.
$(RUN)/model.h5: | $(DATA)/dataset.json
	@$(MPIRUN) -n $(RANKS) $(call mpi_flags,$(RANKS)) $(BIN) train $(RECIPE) --set epochs=1 --data $(DATA) --out $(RUN) --resume auto || \
		{ code=$$?; [ ! -d $(RUN) ] || echo 'the demo did not finish. To start it from the beginning: rm -r $(RUN)' >&2; exit $$code; }

test: ## build and run every test
	@$(MAKE) --no-print-directory setup
	@tests/skipped.sh $(MAKE) --no-print-directory test-all

test-all:
	@$(CARGO) test --locked --workspace -- $$(tests/mounts.sh bad_ends::a_disk_that_is_full stalls::a_hung_file_system_is_named \
		bad_output::an_output_that_is_a_file_system)
	@tests/sites/run.sh
	@tests/pack/choose.sh
	@tests/sites/install.sh '$(or $(CARGO_TARGET_DIR),target)/debug/trireme'

test-sites: ## test the job scripts for PBS, LSF, Flux and ssh with replacements for their commands (less than a minute)
	@tests/sites/run.sh

test-install: build ## test `make install` and `make uninstall` in temporary folders
	@tests/sites/install.sh '$(BIN)'

test-faults: ## kill and stop runs, damage their files and fill their disks at many moments, and resume them (minutes)
	@$(CARGO) test --locked --test faults --test runs -- \
		a_panic a_second_interrupt damaged_checkpoints forged_checkpoints not_finite a_disk_that_fills
	@$(CARGO) test --locked --test faults -- running:: sweep:: --include-ignored --nocapture --test-threads 1 \
		$$(tests/mounts.sh sweep::the_sweep_of_full_disks)

test-networks: ## compare every network with torchvision, timm or plain PyTorch, run recipes of large ones for twenty steps (minutes)
	@$(CARGO) test --locked --test numerics -- catalogue:: --include-ignored --nocapture --test-threads 1 \
		--skip every_network_equals_the_original_on_a_gpu
	@$(CARGO) test --locked --test runs -- recipes:: --include-ignored --nocapture --test-threads 1

test-readme: ## run every command of README.md after `make demo` and compare the output (five minutes)
	@$(MAKE) --no-print-directory demo
	@$(PYTHON) tests/readme/walk.py '$(abspath $(BIN))'

test-bands-page: build ## run every command of docs/bands.md on small GeoTIFFs (one minute)
	@$(PYTHON) tests/readme/walk.py '$(abspath $(BIN))' docs/bands.md

test-many-ranks: ## 64 ranks (RANKS=) on the available cores: start, steps, checkpoint, kill, resume; counts messages and memory (minutes)
	@RANKS='$(if $(filter command line environment,$(origin RANKS)),$(RANKS),64)' \
		$(CARGO) test --locked --test runs -- many:: --ignored --nocapture --test-threads 1

soak: ## train for MINUTES=60 with a fault every 15 seconds: equal bits after every resume, constant memory; SEED= repeats a run
	@MINUTES='$(or $(MINUTES),60)' SEED='$(SEED)' \
		tests/skipped.sh $(CARGO) test --locked --release --test soak -- soak --ignored --nocapture

sanitize: sanitize-orders sanitize-memory sanitize-threads ## thread orders with loom, memory with valgrind, races with TSan (minutes)

# Loom's tests are a separate package, so that neither the program nor its lock file depends on loom.
sanitize-orders:
	@CARGO_TARGET_DIR='$(abspath $(or $(CARGO_TARGET_DIR),target))/loom' \
		$(CARGO) test --locked --release --manifest-path tests/loom/Cargo.toml

# Each test binary runs under valgrind, which emulates AVX2 but not AVX-512. The emulated GPU uses addresses that valgrind reserves, so the
# numerics tests skip it.
VALGRIND := "/usr/bin/valgrind", "--quiet", "--error-exitcode=99"
# libjpeg-turbo's SIMD code reads uninitialised columns past the edge of an image. Its plain code does not.
VALGRIND_PLAIN := "env", "JSIMD_FORCENONE=1", $(VALGRIND)
VALGRIND_CPU := "env", "TRIREME_TEST_CPU_ONLY=1", $(VALGRIND)
under = --config 'target."cfg(all())".runner = [$(1)]'

sanitize-memory:
	@$(call install,$(PACKAGES) valgrind)
	@$(CARGO) test --locked $(call under,$(VALGRIND_PLAIN)) -p loaders --lib -- --test-threads 1
	@$(CARGO) test --locked $(call under,$(VALGRIND_PLAIN)) -p loaders --test loaders -- --test-threads 1 golden::
	@$(CARGO) test --locked $(call under,$(VALGRIND_CPU)) --test numerics -- --test-threads 1 \
		convolutions_agree single_positions padding_stays_zero long_ranges_agree

# Code compiled with ThreadSanitizer cannot be mixed with other code, so it has its own build folder.
sanitize-threads:
	@$(call install,$(PACKAGES))
	@CARGO='$(CARGO)' tests/sanitize/threads.sh

test-digests: build ## OLD=PATH of an earlier build: train the same short runs with both builds and compare the bits (minutes)
	@[ -n '$(OLD)' ] || { echo 'usage: make test-digests OLD=PATH-OF-AN-EARLIER-trireme' >&2; exit 2; }
	@tests/cost/digests.sh '$(OLD)' '$(BIN)'

test-report: build ## open report.html in a headless Chromium: loads at once, no console output, numbers equal the log; takes screenshots
	@$(PYTHON) tests/report/check.py '$(abspath $(BIN))' '$(abspath $(or $(CARGO_TARGET_DIR),target))/report'

# Python packages go into a separate folder. Existing packages are not installed again.
test-interop: build ## models in PyTorch, ONNX Runtime, Keras and back, events in TensorBoard, data sets from and to other packages, from PyPI (7 GB once, then minutes); NETWORKS= selects networks; PHOTOS= fine-tunes on photos
	@NETWORKS='$(NETWORKS)' PYTHON='$(PYTHON)' PHOTOS='$(if $(PHOTOS),$(abspath $(PHOTOS)))' \
		tests/skipped.sh tests/interop/run.sh '$(abspath $(BIN))' '$(abspath $(or $(CARGO_TARGET_DIR),target))/interop'

test-bands: build ## compare every pixel of TIFF, PNG, .npy and HDF5 files with tifffile, imagecodecs, NumPy and h5py, from PyPI (minutes); FILES= adds a folder of TIFFs
	@PYTHON='$(PYTHON)' tests/bands/run.sh '$(abspath $(BIN))' '$(abspath $(or $(CARGO_TARGET_DIR),target))/bands' $(FILES)

test-slurm: build ## test the job scripts under a private Slurm on this machine (root; six minutes)
	@[ "$$(id -u)" != 0 ] || ($(call install,$(PACKAGES) $(SLURM_PACKAGES)))
	@TRIREME='$(abspath $(BIN))' tests/skipped.sh tests/slurm/run.sh

# Needs root for the namespaces, and is skipped elsewhere. The nodes with MPICH are skipped unless `make test-mpich` has built its program.
test-nodes: build ## train over a network of 2 to 4 nodes in network namespaces: ssh, Slurm, slow, cut and dead nodes (root; under 15 minutes)
	@[ "$$(id -u)" != 0 ] || ($(call install,$(PACKAGES) $(NODES_PACKAGES) $(SLURM_PACKAGES)))
	@TRIREME='$(abspath $(BIN))' tests/skipped.sh tests/nodes/run.sh

test-aarch64: ## build for 64-bit ARM with a cross compiler and run its tests under qemu (root, rustup; half an hour)
	@[ "$$(id -u)" != 0 ] || ($(call install,$(PACKAGES) $(AARCH64_PACKAGES)))
	@tests/skipped.sh tests/aarch64/run.sh '$(abspath $(or $(CARGO_TARGET_DIR),target))/aarch64'

fuzz: ## run each fuzz target for SECONDS=60 with the address sanitizer; TARGETS= selects targets (see docs/testing.md)
	@$(call install,$(PACKAGES) $(FUZZ_PACKAGES))
	@fuzz/run.sh '$(or $(SECONDS),60)' $(TARGETS)

# MPICH has its own build folder, because the mpi crate does not notice another mpicc. Plain mpicc and mpirun remain Open MPI's.
test-mpich: ## run the tests of MPI and ranks with MPICH instead of Open MPI, then compare the bits of both
	@$(call install,$(PACKAGES) $(MPICH_PACKAGES))
	@export MPICC=mpicc.mpich MPIRUN=mpirun.mpich CARGO_TARGET_DIR=target-mpich CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0; \
		$(CARGO) test --locked -p comm --test comm -- --test-threads=2; \
		$(CARGO) test --locked --test runs -- laws:: --test-threads=2
	@$(MAKE) --no-print-directory build $(DATA)/dataset.json
	@DATA='$(abspath $(DATA))' tests/mpich/compare.sh '$(abspath $(BIN))' target-mpich/debug/trireme

# NVIDIA's kernel compiler and cuDNN's plans need neither a GPU nor a driver. The lists pin the downloads by their hashes.
CUDA_CHECK := $(or $(CARGO_TARGET_DIR),target)/cuda-check
CUDA_PLANS := $(or $(CARGO_TARGET_DIR),target)/cuda-plans

# $(call pip_folder,LIST,FOLDER): installs the packages of LIST into FOLDER unless they are there.
define pip_folder
if ! cmp -s $(1) $(2)/list; then \
		($(call install,python3-pip)) || exit 1; \
		rm -rf $(2); \
		python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --require-hashes \
			--target $(2) -r $(1); \
		cp $(1) $(2)/list; \
	fi
endef

setup-cuda-check: ## install NVIDIA's compiler and disassembler for GPU kernels (95 MB, from PyPI) into target/cuda-check
	@$(call pip_folder,tests/gpu/nvrtc.txt,$(CUDA_CHECK))
	@chmod +x $(CUDA_CHECK)/nvidia/cu13/bin/nvdisasm

test-cuda-check: setup-cuda-check ## compile every GPU kernel with NVIDIA's compiler for sm_75 to sm_120 and print a table; fails on spills and low occupancy
	@LD_LIBRARY_PATH="$(abspath $(CUDA_CHECK))/nvidia/cu13/lib:$${LD_LIBRARY_PATH:-}" TRIREME_CUDA_CHECK='$(abspath $(CUDA_CHECK))' \
		$(CARGO) test --locked --quiet -p backend --lib cuda::kernels -- --nocapture --include-ignored

setup-cuda-plans: ## install cuDNN and cuBLASLt (1 GB, from PyPI) into target/cuda-plans
	@$(call pip_folder,tests/gpu/cudnn.txt,$(CUDA_PLANS))

# PLAN_GPUS, PLAN_KINDS and PLAN_NETWORKS select some of them, such as PLAN_GPUS=L4 PLAN_KINDS=deterministic PLAN_NETWORKS=resnet50,vgg16
test-cuda-plans: setup-cuda-plans ## ask cuDNN for algorithms of all networks' convolutions on H100, A100 and L4, described by recorded properties (minutes); needs no GPU
	@LD_LIBRARY_PATH="$(abspath $(CUDA_PLANS))/nvidia/cudnn/lib:$(abspath $(CUDA_PLANS))/nvidia/cu13/lib:$${LD_LIBRARY_PATH:-}" \
		TRIREME_PLAN_GPUS='$(PLAN_GPUS)' TRIREME_PLAN_KINDS='$(PLAN_KINDS)' TRIREME_PLAN_NETWORKS='$(PLAN_NETWORKS)' \
		$(CARGO) test --locked --quiet -p backend --lib cuda::cudnn -- --nocapture --include-ignored

BUNDLED := CMAKE_TOOLCHAIN_FILE='$(abspath build/onednn.cmake)' $(CARGO)
WITH_ONEDNN := --release --locked --features bundled-onednn

build-bundled: ## build target/release/trireme with oneDNN 3.14.1 included (half an hour of processor time, mostly only once)
	@$(BUNDLED) build $(WITH_ONEDNN)

# Skipped test: with oneDNN 3.14.1 and two threads, LeNet's losses agree with PyTorch's to 2e-7 for seven steps. Then a value near 0 has
# another sign before ReLU, and the tenth loss differs by 1.4e-4, while the test allows 1e-4.
test-bundled: ## test the CPU kernels and numbers with oneDNN 3.14.1 included
	@$(BUNDLED) test --quiet $(WITH_ONEDNN) -p backend --lib cpu
	@$(BUNDLED) test --quiet $(WITH_ONEDNN) --test numerics -- --skip golden::networks_learn_as_in_pytorch

test-gpu: build ## on a machine with a GPU: operations, networks and laws on the GPU
	@tests/skipped.sh tests/gpu/test.sh

bench-peers: build ## on a quiet machine: compare training on CPUs with PyTorch, alternating runs, one table (installs PyTorch; 40 minutes)
	@PYTHON='$(PYTHON)' PEER='$(PEER)' tests/peers/run.sh '$(abspath $(BIN))' '$(abspath $(or $(CARGO_TARGET_DIR),target))/peers' $(ARGUMENTS)

bench-bands: build ## on a quiet machine: compare the loader with PyTorch's on 13 bands and on floats, alternating (installs PyTorch; ten minutes)
	@SCRIPT=bands.py PYTHON='$(PYTHON)' PEER='$(PEER)' tests/peers/run.sh '$(abspath $(BIN))' '$(abspath $(or $(CARGO_TARGET_DIR),target))/peers' '$(abspath $(or $(CARGO_TARGET_DIR),target))/bands-bench' $(ARGUMENTS)

bench-gpu: ## on a machine with a GPU: compare speed with PyTorch on the same GPU, in a table (less than ten minutes)
	@$(PYTHON) tests/gpu/bench.py --trireme $(BIN) $(if $(wildcard $(CIFAR10)/dataset.json),--data $(CIFAR10))

pack-gpu: build ## make target/trireme-gpu.tar.xz: binary, tests and an MPI, for a machine that only has a GPU and its driver
	@$(call install,$(PACK_PACKAGES))
	@tests/gpu/pack.sh

test-pack-gpu: pack-gpu ## test that archive on a minimal Debian of another release: doctor, golden numbers, two ranks (root; minutes)
	@$(call install,$(BARE_PACKAGES))
	@tests/gpu/test-pack.sh

pack: $(if $(CROSS),,build) ## make target/trireme-VERSION-ARCH.tar.xz: for Linux with glibc 2.31 or later, for Open MPI and MPICH, with its libraries; ARCH=aarch64
	@$(call install,$(PACK_PACKAGES))
	@ARCH='$(ARCH)' packaging/pack.sh

test-pack: pack ## test that archive on minimal Debians 11, 12 and 13 (RELEASES=), with the MPIs of each and with Intel's; ARCH=aarch64 (root; minutes)
	@$(call install,$(BARE_PACKAGES))
	@ARCH='$(ARCH)' tests/pack/test.sh $(RELEASES)

deb: build ## make target/trireme_VERSION_amd64.deb for this Debian and its Open MPI
	@$(call install,$(PACKAGES) dpkg-dev)
	@packaging/deb.sh

test-deb: deb ## install that package on a minimal Debian 12, train on two ranks, remove it (root; minutes)
	@$(call install,$(BARE_PACKAGES))
	@tests/pack/deb.sh

# With packages from PyPI: PYTHON=VENV/bin/python after `VENV/bin/pip install easybuild py-rattler-build`
test-recipes: ## test the recipes for Lmod, Environment Modules, EasyBuild, rattler-build and Spack with those that exist here (seconds)
	@PYTHON='$(PYTHON)' tests/skipped.sh tests/pack/recipes.sh

# Installs into the build folder instead of the user's cargo folder.
CYCLONEDX_VERSION := 0.5.9
CYCLONEDX_ROOT := $(abspath $(or $(CARGO_TARGET_DIR),target)/cargo-cyclonedx)

dist: ## make target/trireme-VERSION.tar.xz, the sources with those of all crates, a list of all components, and checksums of all archives
	@[ "$$($(CYCLONEDX_ROOT)/bin/cargo-cyclonedx cyclonedx --version 2>/dev/null | cut -d ' ' -f 2)" = '$(CYCLONEDX_VERSION)' ] || \
		$(CARGO) install --quiet --locked --root '$(CYCLONEDX_ROOT)' cargo-cyclonedx@$(CYCLONEDX_VERSION)
	@CYCLONEDX='$(CYCLONEDX_ROOT)/bin/cargo-cyclonedx' packaging/dist.sh

test-dist: dist ## make that archive a second time and compare, then build it without a network (minutes)
	@CYCLONEDX='$(CYCLONEDX_ROOT)/bin/cargo-cyclonedx' tests/skipped.sh tests/pack/source.sh

image: pack ## make target/trireme-VERSION-ARCH.oci.tar for Apptainer, Podman and Docker: archive and Open MPI on Debian 12 (root)
	@$(call install,$(BARE_PACKAGES))
	@ARCH='$(ARCH)' packaging/image.sh

test-image: image ## test that image, unpacked by umoci on Debian: doctor, 100 steps of the demo, two ranks (root)
	@tests/pack/image.sh

bench: build ## measure the speeds in docs/performance.md, as JSON lines (minutes; keep the machine idle)
	@$(BIN) bench step --model resnet20 --batch 128 --threads 2
	@$(BIN) bench step --model resnet20 --batch 128 --threads 1
	@$(BIN) bench step --model lenet --batch 64 --threads 2
	@if [ -f data/cifar10/dataset.json ]; then $(BIN) bench loader data/cifar10 --threads 1; \
	elif [ -f $(DATA)/dataset.json ]; then $(BIN) bench loader $(DATA) --threads 1; \
	else echo 'no data/cifar10 for `bench loader`; make it with: trireme data convert cifar10 SRC data/cifar10' >&2; fi
	@$(MPIRUN) -n $(RANKS) $(call mpi_flags,$(RANKS)) $(BIN) bench allreduce

# Alternates between both precisions, because the clock frequency of a machine varies. If the processor has no bf16, the first command says
# so.
bench-bf16: build ## with AVX512-BF16: run the bf16 tests on this processor, then measure ResNet-50's step in f32 and bf16 (ten minutes)
	@$(BIN) bench step --device cpu --model lenet --batch 4 --seconds 0.1 --precision bf16
	@$(CARGO) test --locked --test numerics -- bf16:: --nocapture
	@for precision in f32 bf16 f32 bf16; do \
		$(BIN) bench step --device cpu --model resnet50 --batch 32 --seconds 20 --precision $$precision; \
	done

# TABLE is the table to measure, OPS_MODELS are the networks with its convolutions. MEASURE is an optional command that keeps the machine
# quiet during each measurement.
TABLE ?=
OPS_MODELS := lenet cifarnet resnet20 wrn16_2 wrn28_10 airbench94 resnet18 alexnet vgg16 squeezenet1_0 googlenet densenet121 inception_v3 inception_v4
MEASURE ?=

bench-ops: build ## TABLE=zen4 on a quiet machine: measure this table of crates/backend/src/cpu/choices (two minutes; then build again)
	@[ -f crates/backend/src/cpu/choices/$(TABLE).txt ] || { echo 'unknown TABLE: expected zen4, zen5, intel-avx512 or avx2' >&2; exit 1; }
	@for model in $(OPS_MODELS); do \
		$(MEASURE) $(BIN) bench ops --model $$model --most-gflop 10 --seconds 0.1 \
			--table crates/backend/src/cpu/choices/$(TABLE).txt >/dev/null || exit 1; \
	done

# Data sets to measure, if they exist: photos as JPEG files, the same converted with `--resize 256 --raw`, and CIFAR-10.
JPEG ?= data/jpeg10
RAW256 ?= data/jpeg10-raw256
CIFAR10 ?= data/cifar10
CROPS := random_resized_crop(224),flip,normalize

bench-change: build ## CHANGE=KEY=VALUE RECIPE= [RANKS=2] [ARGUMENTS=] on a quiet machine: time that this change of a recipe adds to a step
	@$(if $(and $(CHANGE),$(RECIPE)),,echo 'make bench-change CHANGE=reduce.codec=exact RECIPE=recipes/cifar10-resnet20.toml [RANKS=2] [ARGUMENTS="--data DIR --threads 1"]' >&2; exit 2)
	@$(PYTHON) tests/cost/change.py $(BIN) $(RECIPE) $(CHANGE) --ranks $(RANKS) $(OPTIONS) -- $(ARGUMENTS)

bench-loader: build ## measure only the loader on JPEG=, RAW256= and CIFAR10=, if they exist, with 1 and 2 threads, floats and bytes
	@measure() { [ -f "$$1/dataset.json" ] || { echo "no $$1: skipped" >&2; return 0; }; \
	for form in "" --bytes; do for threads in 1 2; do \
		$(BIN) bench loader "$$1" --transform "$$2" --batch "$$3" --threads $$threads --epochs "$$4" $$form; \
	done; done; }; \
	measure '$(JPEG)' '$(CROPS)' 64 5; \
	measure '$(RAW256)' '$(CROPS)' 64 9; \
	measure '$(CIFAR10)' 'pad_crop(4),flip,normalize' 128 9

lint: check-aarch64 ## run rustfmt and clippy, warnings are errors; check the lock file of the fuzz targets, compile the tests of loom and, with a cross compiler, the code for ARM
	@git ls-files "*.rs" | xargs rustfmt --edition 2024 --check
	@$(CARGO) metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml > /dev/null
	@CARGO_TARGET_DIR='$(abspath $(or $(CARGO_TARGET_DIR),target))/loom' \
		$(CARGO) check --locked --quiet --tests --manifest-path tests/loom/Cargo.toml
	@$(CARGO) clippy --locked --workspace --all-targets --quiet -- -D warnings

# The crates that contain code for ARM. `make test-aarch64` also runs it, but takes half an hour.
check-aarch64:
	@if ! command -v aarch64-linux-gnu-g++ > /dev/null; then \
		echo 'skipped: check for ARM: needs the Debian package g++-aarch64-linux-gnu' >&2; \
	elif ! rustup target add aarch64-unknown-linux-gnu > /dev/null 2>&1; then \
		echo 'skipped: check for ARM: rustup cannot install the target aarch64-unknown-linux-gnu' >&2; \
	else $(CARGO) check --locked --quiet --target aarch64-unknown-linux-gnu -p base -p loaders -p backend; fi

DENY_VERSION := 0.20.2
DENY_ROOT := $(abspath $(or $(CARGO_TARGET_DIR),target)/cargo-deny)

deny: ## check licences, duplicates, sources and known vulnerabilities of all crates with deny.toml (installs cargo-deny: minutes)
	@[ "$$($(DENY_ROOT)/bin/cargo-deny --version 2>/dev/null)" = 'cargo-deny $(DENY_VERSION)' ] || \
		$(CARGO) install --quiet --locked --root '$(DENY_ROOT)' cargo-deny@$(DENY_VERSION)
	@$(DENY_ROOT)/bin/cargo-deny --locked check --hide-inclusion-graph licenses bans sources
	@if $(DENY_ROOT)/bin/cargo-deny fetch db; then $(DENY_ROOT)/bin/cargo-deny --locked check --disable-fetch advisories; \
	else echo 'NOT CHECKED for known vulnerabilities: the advisory database cannot be fetched' >&2; fi

doc: ## build target/doc/trireme/index.html, warnings are errors
	@RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps --quiet

clean: ## remove the results of build and demo
	@$(CARGO) clean --quiet
	@rm -rf $(RUN) $(DATA)
