# make demo   set up, build in release mode, run the demo job to its end
# make demo-vllm, make demo-sglang   the same with real engines as rollouts
# make demo-torch, make demo-torch-vllm   the same with a PyTorch trainer, and with vLLM beside it
# make demo-environment   the same with conversations held by a Python program
# make demo-own-loop   a PyTorch trainer with a loop of its own, which asks the engines itself
# make demo-trl   TRL's asynchronous GRPO trainer beside vLLM engines; make test-trl   its tests (0.1 GB more, once)
# make test [SLOW=all]   set up, run every test but the slow ones, or those too; says at its end which of them did not run here, and why
# make test-kubernetes   the manifests for Kubernetes on a real control plane, built first from Debian's source (five minutes, once)
# make python  a python with torch, for trainers written with it on a processor (0.6 GB, once)
# make build  set up, build all programs in release mode, robust-bench too, which measures and is not installed (V=1: with cargo's own lines)
# make fuzz-smoke [FUZZ_SECONDS=120]   inputs from outside, mutated: each fuzz target for two minutes; make fuzz   for an hour
# make dist   a tarball and a .deb with all that they need, in target/dist; make dist-test   tries them in a chroot
# make sbom   what the programs are made of, as CycloneDX, in target/dist
# make docs   the book of docs/ as HTML, in target/docs
# make man    build, then manual pages and completions in target/share
# make install [PREFIX=/usr/local] [DESTDIR=]   programs, manual pages, completions
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PREFIX ?= /usr/local
PROGRAMS := robustd robustctl robust-worker robust-shim robust-calc robust-weights
# The demo needs no program that stands beside one of yours, nor the one that measures.
DEMO_BINS := -p robustd -p robustctl -p robust-worker
# robust-bench is none of PROGRAMS: it measures, and is neither installed nor packed.
BINS := $(DEMO_BINS) -p robust-shim -p robust-weights -p robust-bench

.PHONY: all setup setup-tests python build man install demo demo-vllm demo-sglang demo-torch demo-environment demo-own-loop demo-torch-vllm demo-trl test test-trl test-kubernetes test-engines test-device test-upgrade test-fast soak soak-ha asan fuzz fuzz-smoke bench bench-ha bench-load bench-engines dist dist-test sbom fmt lint doc docs deny advisories clean

all: build

setup:
	@scripts/setup.sh

# What trainers written with PyTorch run with where there is no device.
python: setup
	@scripts/torch.sh

build: setup
	@CARGO="$(CARGO)" scripts/build.py --locked --release $(BINS) --bins

man: build
	@scripts/man.sh "$(TARGET_DIR)/release" "$(TARGET_DIR)/share"

# robust-worker goes on using the libtorch that it was built with, where that lies.
install: man
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/share"
	install -m 755 $(addprefix "$(TARGET_DIR)/release"/,$(PROGRAMS)) "$(DESTDIR)$(PREFIX)/bin"
	cp -r "$(TARGET_DIR)/share/." "$(DESTDIR)$(PREFIX)/share"

demo: setup
	@CARGO="$(CARGO)" scripts/build.py --locked --release $(DEMO_BINS) --bins
	@scripts/demo.sh "$(TARGET_DIR)/release"

# The demo with real engines as rollouts, which are set up first (some 3 GB, once).
demo-vllm demo-sglang: build
	@scripts/engines.sh
	@scripts/engines.sh --run env DEMO_JOB=fixtures/jobs/$@.toml scripts/demo.sh "$(TARGET_DIR)/release"

# The demo with a trainer, or with environments, of the user's, whose python is set up first (0.6 GB, once).
demo-torch demo-environment: build python
	@scripts/torch.sh --run env DEMO_JOB=fixtures/jobs/$@.toml scripts/demo.sh "$(TARGET_DIR)/release"

# The same with a loop of its own, on a small model of random weights.
demo-own-loop: build python
	@scripts/torch.sh --run sh -c '"$$TORCH_PYTHON" examples/own_loop/make_model.py examples/own_loop/model'
	@scripts/torch.sh --run env DEMO_JOB=fixtures/jobs/$@.toml scripts/demo.sh "$(TARGET_DIR)/release"

demo-torch-vllm: build python
	@scripts/engines.sh
	@scripts/torch.sh --run scripts/engines.sh --run env DEMO_JOB=fixtures/jobs/$@.toml scripts/demo.sh "$(TARGET_DIR)/release"

# TRL's own trainer, whose python is set up first, and vLLM. Its checkpoints lie in a folder that goes with the demo.
demo-trl: build python
	@scripts/engines.sh
	@scripts/trl.sh
	@scripts/trl.sh --run sh -c '"$$TRL_PYTHON" examples/trl_async/make_model.py examples/trl_async/model'
	@output=$$(mktemp -d); trap 'rm -rf "$$output"' EXIT; \
	  TRL_OUTPUT="$$output" scripts/trl.sh --run scripts/engines.sh --run env DEMO_JOB=fixtures/jobs/$@.toml scripts/demo.sh "$(TARGET_DIR)/release"

# The adapter for TRL against TRL itself, and a job of it beside the program that plays vLLM.
test-trl: setup python
	@scripts/trl.sh
	$(CARGO) build --locked $(BINS) -p fake-engine --bins
	@scripts/trl.sh --run sh -c 'PYTHONPATH=python/src "$$TRL_PYTHON" -m unittest discover -s python/tests'
	@scripts/trl.sh --run $(CARGO) test --locked -p robust-tests --test trl -- --ignored

# The manifests of fixtures/ops/kubernetes on a control plane that scripts/kubernetes.sh builds, and the kubelet of the tests
# that runs their pods (network namespaces, so root). Once it is built `make test` runs them as well.
test-kubernetes: setup-tests
	@scripts/kubernetes.sh
	$(CARGO) build --locked $(BINS) --bins
	$(CARGO) test --locked -p robust-kubernetes
	$(CARGO) test --locked -p robust-tests --test kubernetes --test kubernetes_run

# What the build needs, and what tests look for.
setup-tests: setup
	@scripts/setup.sh --tests

# The end-to-end tests start the programs of the same profile, so those are built first.
test: setup-tests python
	$(CARGO) build --locked $(BINS) -p fake-engine --bins
	@scripts/test.sh

# Where there is an NVIDIA device, with TORCH_PYTHON naming a python with torch for CUDA and transformers: what the driver
# does with memory, and jobs whose trainer computes there. Prints rates; what the jobs found goes to target/bench/device.json.
test-device: setup
	$(CARGO) build --locked --release $(BINS) --bins
	$(CARGO) test --locked --release -p robust-device -p robust-transport --test on_a_device --test shm_on_a_device --test tls_on_a_device -- --ignored --nocapture --test-threads=1
	ROBUST_TEST_DEVICE=1 $(CARGO) test --locked --release -p robust-weights --test devices
	@scripts/test_device.py "$(TARGET_DIR)/release" "$(TARGET_DIR)/bench/device.json"

# The programs of this build beside those of an earlier one: FORMER=DIR names the folder of its robustd and robust-worker.
test-upgrade: setup
	$(CARGO) build --locked $(BINS) -p fake-engine --bins
	ROBUST_FORMER="$(abspath $(FORMER))" $(CARGO) test --locked -p robust-tests --test upgrade -- --nocapture

# The real engines, set up first: the shim's tests with them, one after the other (a quarter of an hour on
# two cores), then asked again all that was recorded of them; what they answer otherwise fails.
test-engines: setup
	@scripts/engines.sh
	@scripts/engines.sh --run scripts/test_engines.sh
	@scripts/record_engines.py --check

# Everything but the tests that start real jobs.
test-fast: setup-tests
	@scripts/test.sh --exclude robust-tests

# The fault search on all cores, until told to stop: 200,000 fresh seeds a line. What it finds lies in sim-found.
# CONTROLLERS=3: with so many controllers.
soak:
	$(CARGO) build --locked --release -p robustctl
	@from=$${FROM:-$$(date +%s)000}; while :; do \
	  "$(TARGET_DIR)/release/robustctl" sim search --from $$from --seeds 200000 --controllers $${CONTROLLERS:-1} --keep-going 50 || [ $$? = 1 ] || exit $$?; \
	  from=$$((from + 200000)); \
	done

# The transport's tests under the address sanitizer, which a stable compiler has when told so. UCX's hooks
# into malloc and the daemon's own signal handlers get in its way; the library that stands for the CUDA
# driver finds the sanitizer in the program that loads it. A process for each test, where nextest is
# installed: what an endpoint leaves behind that is closed while it connects, UCX 1.13 may hand to the
# next one of that process.
asan: setup
	UCX_MEM_MMAP_HOOK_MODE=none ASAN_OPTIONS=handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0 \
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Clink-arg=-rdynamic" CARGO_TARGET_DIR="$(TARGET_DIR)/asan" \
	$(CARGO) $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo nextest run || echo test) --locked -p robust-transport --target $(shell rustc -vV | sed -n 's/^host: //p')

# Every target of tests/fuzz, from the corpus that is checked in. An hour each is some 10^8 inputs of the first target
# and 10^6 to 10^7 of the others on two cores: FUZZ_SECONDS is for longer, FUZZ_TARGETS for fewer of them.
fuzz-smoke: setup
	@CARGO="$(CARGO)" scripts/fuzz.sh smoke $(FUZZ_SECONDS) $(FUZZ_TARGETS)

fuzz: setup
	@CARGO="$(CARGO)" scripts/fuzz.sh long $(FUZZ_SECONDS) $(FUZZ_TARGETS)

bench: setup python
	$(CARGO) build --locked --release $(BINS) -p fake-engine --bins
	@scripts/torch.sh --run scripts/bench.sh "$(TARGET_DIR)/release"
	@scripts/torch.sh --run scripts/bench_deltas.py "$(TARGET_DIR)/release" "$(TARGET_DIR)/bench/weights.json"
	@scripts/bench_peers.py "$(TARGET_DIR)/release" "$(TARGET_DIR)/bench/weights.json"
	@scripts/torch.sh --run scripts/bench_torch.py "$(TARGET_DIR)/release" "$(TARGET_DIR)/bench/hosting.json"
	@scripts/torch.sh --run scripts/bench_launchers.py "$(TARGET_DIR)/release" "$(TARGET_DIR)/bench/hosting.json"

# What the death of the controller that leads costs, of its process and of its whole machine (network namespaces, so root;
# a quarter of an hour): target/bench/ha.json.
HA_DEATHS ?= 100
HA_MACHINES ?= 20
bench-ha: setup-tests
	$(CARGO) build --locked --release $(BINS) --bins
	@mkdir -p "$(TARGET_DIR)/bench"
	ROBUST_PROGRAMS="$(abspath $(TARGET_DIR))/release" $(CARGO) run --locked --quiet -p robust-tests --example bench_ha -- \
	  --deaths $(HA_DEATHS) --machines $(HA_MACHINES) --out "$(TARGET_DIR)/bench/ha.json"

# What one leader costs with ten, a hundred and a thousand nodes of eight instances each, which are light ones in one process
# (five minutes): target/bench/load.json.
LOAD_NODES ?= 10,100,1000
LOAD_SECONDS ?= 30
# Turns that the agents of a node store a second: 20 at 1,000 nodes ask for more than four cores.
LOAD_TURNS ?= 1
bench-load: setup-tests
	$(CARGO) build --locked --release -p robustd -p robustctl --bins
	@mkdir -p "$(TARGET_DIR)/bench"
	ROBUST_PROGRAMS="$(abspath $(TARGET_DIR))/release" $(CARGO) run --locked --quiet --release -p robust-tests --example bench_load -- \
	  --nodes $(LOAD_NODES) --seconds $(LOAD_SECONDS) --turns-per-s $(LOAD_TURNS) --out "$(TARGET_DIR)/bench/load.json"

# The same with a thousand deaths, then HA_ROUNDS of each other way in which machines, disks, nets and etcd fail (hours).
HA_ROUNDS ?= 100
soak-ha:
	@$(MAKE) bench-ha HA_DEATHS=1000 HA_MACHINES=200
	ROBUST_PROGRAMS="$(abspath $(TARGET_DIR))/release" ROBUST_HA_ROUNDS=$(HA_ROUNDS) $(CARGO) test --locked -p robust-tests \
	  --test controllers_struck -- --nocapture --test-threads=1

# What hosting the real engines costs, and how fast they are back when they are killed (half an hour).
bench-engines: setup
	@scripts/engines.sh --large
	$(CARGO) build --locked --release $(BINS) -p fake-engine --bins
	@mkdir -p "$(TARGET_DIR)/bench"
	@BENCH_LARGE=1 scripts/engines.sh --run scripts/bench_hosting.sh "$(TARGET_DIR)/release" "$(TARGET_DIR)/bench/hosting.json" vllm sglang

# A tarball, a .deb and a list of what they are made of in target/dist; dist-test tries both packages on a plain Debian
# in a chroot (root, debootstrap).
dist: man
	@scripts/dist.sh "$(TARGET_DIR)/release" "$(TARGET_DIR)/dist"

dist-test: dist
	@scripts/dist_test.sh "$(TARGET_DIR)/dist"

# What the programs are made of, as CycloneDX.
sbom: setup
	@mkdir -p "$(TARGET_DIR)/dist"
	@scripts/sbom.sh "$(TARGET_DIR)/dist/robustrl.cdx.json"

fmt:
	$(CARGO) fmt --all -- --check

lint: setup
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

doc: setup
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

# The book of docs/, as HTML.
docs:
	@scripts/docs.sh "$(TARGET_DIR)/docs"

deny:
	@scripts/deny.sh check licenses bans sources
	@scripts/deny.sh --manifest-path tests/fuzz/Cargo.toml --all-features --config deny.toml check licenses bans sources

# Known holes in what is linked, against the database of today (network). An exception in deny.toml whose day
# has passed fails, so that somebody looks again.
advisories:
	@today=$$(date +%F); grep -oE 'until [0-9]{4}-[0-9-]+' deny.toml | while read -r _ day; do \
	  [[ "$$day" > "$$today" ]] || { echo "deny.toml: the exception until $$day has to be looked at again" >&2; exit 1; }; done
	@scripts/deny.sh check advisories
	@scripts/deny.sh --manifest-path tests/fuzz/Cargo.toml --all-features --config deny.toml check advisories

clean:
	$(CARGO) clean
