# From a fresh clone, with make and Python 3.11 or newer: `make demo`, `make test`. `make help` lists the rest.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
EXAMPLES ?= 20000

# Caches stay inside the checkout, so nothing else has to be writable.
export MPLCONFIGDIR := $(CURDIR)/.cache/matplotlib
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
test slow faults bench: export JAX_PLATFORMS ?= cpu

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint slow faults bench figures page docs lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with the pinned dependencies (the other targets do it when needed)

# hatchling is pinned with the rest, so the build needs no download of its own.
$(STAMP): requirements.lock pyproject.toml
	@set -e; for candidate in $(PYTHON) python3 python3.11 python3.12 python3.13 python3.14; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "make: e3rl needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; fi; \
	[ -x $(BIN)/python ] && $(BIN)/python -c 'import pip' >/dev/null 2>&1 || "$$python" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## Neural-E³ solves an antishaped combination lock: a minute or two, progress, a picture
	$(BIN)/e3rl train lock --horizon 5 --antishaped --out runs/demo --resume
	@echo "try next: $(BIN)/e3rl train lock --horizon 10 --antishaped   (rm -r runs/demo to run the demo afresh)"

test: lint ## Linters, type checker, import contract, quick tests
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: $(STAMP) ## The learning tests, minutes each
	$(BIN)/python -m pytest -m slow

faults: $(STAMP) ## Kill, starve and feed nonsense to runs, about an hour; counts in results/faults/
	E3RL_FAULTS_OUT=results/faults E3RL_FAULTS_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q -n $(WORKERS) \
	  --dist loadfile tests/faults -m "faults or not faults"

bench: $(STAMP) ## Time every benchmark on one CPU; results in results/bench/
	$(BIN)/e3rl bench --out results/bench

figures: $(STAMP) ## Redraw the pictures of the environments (Figure 1 of the paper)
	$(BIN)/e3rl envs --draw results/figures/figure1

page: $(STAMP) ## What is made from the data: tables of the documentation, docs/claims.md, durations, results/report.html
	$(BIN)/e3rl reproduce claims --out docs
	$(BIN)/python -m e3rl.experiments.durations results
	$(BIN)/python -m e3rl.reports.documented docs results
	$(BIN)/python -m e3rl.reports.reproduction docs/reproduce.md
	$(BIN)/e3rl report results

docs: $(STAMP) ## Build the documentation into site/
	$(BIN)/mkdocs build --quiet --strict

lock: $(STAMP) ## Resolve requirements.lock again; UPGRADE=1 takes the newest versions
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev --no-annotate --no-emit-index-url \
	  --no-emit-find-links --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) \
	  pyproject.toml -o requirements.lock

clean: ## Remove the virtual environment, caches and built files
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache site dist build
