# The front door; CMake and Ninja (CMakeLists.txt, CMakePresets.json) do the work behind it.
# make            build/dev/gpudays, the tests and the benchmarks
# make help       the other targets

PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 6
# How often a test may be tried, to tell a flaky one from a broken one; the closing line names it.
TRIES ?= 1
# Further arguments of ctest: a choice of tests.
TESTS ?=
# Tests at once: some of them sleep while others compute. With one more than there are cores a third of two was idle.
JOBS ?= $(shell expr $$(nproc) + 2)
QUICKSTART_SECONDS ?= 30
# What pip installs without root.
export PATH := $(PATH):$(HOME)/.local/bin

.DEFAULT_GOAL := all
.PHONY: all help quickstart check check-all check-rest test asan fuzz aarch64-check gpu-check gpu-sanitize lint lint-all format bench learn calibrate-cpu accuracy readme planner install uninstall package package-deb package-tarball clean
.NOTPARALLEL: # the steps of check share two cores and one screen; each is parallel inside

all: build/dev/build.ninja ## build everything (the default)
	@tools/timed "building dev" cmake --build --preset dev

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' Makefile | expand -t 17

quickstart: ## install what is missing, build, answer for GPUs, then predict, measure and train on the CPU
	@tools/quickstart $(QUICKSTART_SECONDS)

check: ## install what is missing, then every test: dev, sanitizers, fuzzers, clang, lint
	@tools/setup
	@tools/check check test asan fuzz lint

check-all: ## check and check-rest: every case of every test
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory check-rest

check-rest: ## what check leaves out: all cases of the tests it samples, longer fuzzing, clang's analyzer
	@tools/setup
	@GD_TEST_ALL=1 tools/check check-rest test asan fuzz lint-all FUZZ_SECONDS=45 TESTS='-L sampled'

test: all ## build and run all tests; of those with many cases a part, see tests/support/sample.h
	@tools/timed "tests" tools/ctest dev -j $(JOBS) --repeat until-pass:$(TRIES) $(TESTS)

asan: build/asan/build.ninja ## the quick test folders under ASan + UBSan
	@tools/timed "building asan" cmake --build --preset asan
	@tools/timed "tests under ASan + UBSan" tools/ctest asan -j $(JOBS) --repeat until-pass:$(TRIES) $(if $(GD_TEST_ALL),,-LE rest) $(TESTS)

fuzz: build/fuzz/build.ninja ## run each fuzzer for FUZZ_SECONDS
	@tools/timed "building fuzz" cmake --build --preset fuzz
	@tools/timed "fuzzing" tools/fuzz build/fuzz $(FUZZ_SECONDS)

aarch64-check: ## compile for 64-bit ARM, run the unit tests under qemu
	@tools/aarch64-check

gpu-check: all ## the tests that need a GPU; each is skipped with its reason where there is none
	@rm -rf build/dev/gpu-cache
	@ctest --preset dev -L gpu --verbose -j 8

gpu-sanitize: all ## a sample of them under compute-sanitizer
	@tests/gpu/sanitize.sh build/dev || [ $$? = 77 ]

lint: ## formatting, rules of the source, clang -Werror, clang-tidy, shellcheck
	@tools/timed "lint" tools/lint

lint-all: ## the same with clang's analyzer
	@tools/timed "lint" tools/lint --all

format: ## apply clang-format
	@find src include tests bench examples -name '*.[ch]' 2>/dev/null | xargs -r clang-format -i

bench: all ## run the performance benchmarks
	@tools/bench build/dev

# What whole steps say besides the ops that were timed one by one; a minute or two. The calibrations themselves are measured anew by
# 'make calibrate-cpu', on a quiet machine like the one of results/epyc.csv, and for the H200 by
# 'gpudays calibrate --backend cuda -o data/calibration/h200.json'; then 'make learn accuracy'.
learn: export XDG_DATA_HOME = /nonexistent
learn: build/dev/build.ninja ## let calibrations learn from the trials in results/
	@cmake --build --preset dev --target gpudays
	@build/dev/gpudays calibrate learn results/h200.csv --calibration data/calibration/h200.json
	@build/dev/gpudays calibrate learn results/epyc.csv --calibration data/calibration/epyc-2-threads.json

calibrate-cpu: build/dev/build.ninja ## measure this CPU for data/calibration (quiet machine, two threads, 3 minutes)
	@cmake --build --preset dev --target gpudays
	@build/dev/gpudays calibrate --backend cpu --threads 2 --time-limit 3m -o data/calibration/epyc-2-threads.json

# What predictions missed the stored trials by is in the calibrations, and those are in the program.
accuracy: export XDG_DATA_HOME = /nonexistent
accuracy: build/dev/build.ninja ## write results/accuracy.md and the errors of calibrations anew, from what is in the repository alone
	@cmake --build --preset dev --target gpudays
	@build/dev/gpudays fit -o data/fitted/published.json >/dev/null
	@cmake --build --preset dev --target gpudays
	@build/dev/gpudays accuracy results/h200.csv --calibration data/calibration/h200.json >/dev/null
	@build/dev/gpudays accuracy results/epyc.csv --calibration data/calibration/epyc-2-threads.json >/dev/null
	@cmake --build --preset dev --target gpudays
	@build/dev/gpudays accuracy results/*.csv -o results/accuracy.md

readme: build/dev/build.ninja ## write the answers in README.md anew
	@cmake --build --preset dev --target gpudays
	@tools/readme build/dev/gpudays

planner: ## build/planner.html, the planner for browsers (docs/planner.md); installs emscripten when it is missing
	@tools/planner

install: build/dev/build.ninja ## program, library, manual page and completion to PREFIX (under DESTDIR)
	@cmake --build --preset dev --target manual gpudays_shared
	@DESTDIR=$(DESTDIR) cmake --install build/dev --prefix $(PREFIX)

uninstall: ## remove what 'make install' has installed (under DESTDIR)
	@DESTDIR=$(DESTDIR) cmake -DMANIFEST=build/dev/install_manifest.txt -P cmake/uninstall.cmake

package: package-deb package-tarball ## Debian packages (build/deb/packages) and a tarball for any x86-64 Linux (build/packages)

package-deb: ## the Debian packages alone
	@tools/package deb

package-tarball: ## the tarball alone; for 64-bit ARM: tools/package tarball arm64
	@tools/package tarball

clean: ## remove build/
	rm -rf build

# Ninja re-runs CMake by itself after this first time.
build/%/build.ninja: CMakePresets.json
	@command -v cmake >/dev/null && command -v ninja >/dev/null || \
	  { echo "cmake or ninja is missing: run tools/setup" >&2; exit 1; }
	@tools/timed "configuring $*" cmake --preset $*
