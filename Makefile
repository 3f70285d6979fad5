# Everything a person types. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Which build to use (build/<preset>): cuda where nvcc is found, else cpu. Presets: CMakePresets.json.
PRESET ?= $(if $(shell tools/cuda_toolkit.sh --find 2>/dev/null),cuda,cpu)
# The builds that `make test` compiles and runs unit tests of. The first one's server is driven by pytest.
TEST_PRESETS ?= $(PRESET)
# Passed on to the demo, such as DEMO_ARGS="--epochs 5 --backend cpu".
DEMO_ARGS ?=
# Passed on to pytest, such as PYTEST_ARGS="-k upload".
PYTEST_ARGS ?=

.PHONY: help
help: ## List these targets
	@sed -n 's/^\([a-z -]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

.PHONY: demo
demo: build ## Train a network on handwritten digits over gRPC, from nothing
	@.venv/bin/python clients/python/examples/digits_mlp.py --server build/$(PRESET)/bin/kernelboxd $(DEMO_ARGS)

.PHONY: test
test: setup ## Build and run every suite and linter
	@PYTEST_ARGS='$(PYTEST_ARGS)' tools/test.sh $(TEST_PRESETS)

.PHONY: setup
setup: ## Install what is missing: system packages, Python packages into .venv
	@tools/setup.sh

.PHONY: build
build: setup ## Build the server and its tests, with the CUDA backend where nvcc is found
	@tools/build.sh $(PRESET)

.PHONY: cuda
cuda: setup ## Build the CUDA backend; fetch a toolkit into .cuda where there is none
	@tools/cuda_toolkit.sh --fetch
	@tools/build.sh cuda

.PHONY: lint
lint: build ## Run the linters alone
	@tools/lint.sh $(PRESET)

.PHONY: format
format: setup ## Format C++, CUDA and Python sources in place
	@tools/format.sh

.PHONY: asan tsan
asan tsan: setup ## Build with sanitizers and run the unit tests
	@tools/build.sh $@
	@ctest --preset $@

.PHONY: bench-rpc
bench-rpc: build ## Measure ops a second and transfer rates over gRPC, from C++ and Python
	@.venv/bin/python tests/bench/bench_rpc.py --server build/$(PRESET)/bin/kernelboxd \
		--cpp build/$(PRESET)/bin/bench_rpc

.PHONY: device-bundle
device-bundle: cuda ## Pack server, tests and their libraries into .bundle for another machine
	@tools/device_bundle.sh

.PHONY: clean
clean: ## Remove builds and generated code; keep .venv and .cuda
	rm -rf build .bundle clients/python/src/kernelbox/_proto
