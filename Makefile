# Everything works from a fresh clone with Python 3.11+ and make. `make help` lists the targets.
# ARGS goes through to the program: make test ARGS="-k scan -x", make bench ARGS="--quick".
# SEED draws the random cases of an earlier run again: make proof SEED=1234.

.DEFAULT_GOAL := help
.PHONY: help setup demo test proof check bench fuzz interop nightly wheel lock clean
ARGS ?=
JOBS ?= auto
SEED ?= $(STRATALOG_SEED)

PY := .venv/bin/python
CANDIDATES := $(PY) python3.13 python3.12 python3.11 python3 python
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

# The first candidate that really runs (a shim or a broken .venv does not) and is new enough.
ifndef PYTHON
PYTHON = $(shell for each in $(CANDIDATES); do \
	"$$each" -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { echo "$$each"; break; }; done)
endif

BOOTSTRAP = @python="$(PYTHON)"; \
	if ! "$$python" -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then \
	echo "stratalog: no Python 3.11 or newer found$${python:+ in $$python}: install one (apt install" \
	"python3 python3-venv python3-dev, brew install python) or name it: make PYTHON=..." >&2; exit 1; fi; \
	exec "$$python" tools/bootstrap.py

STAGE = @STRATALOG_JOBS="$(JOBS)" STRATALOG_SEED="$(SEED)" $(PY) tools/run_stage.py

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: ## only the set-up: .venv with the pinned packages and the compiled kernel
	$(BOOTSTRAP) setup

demo: setup ## set everything up and run the main job
	@$(PY) examples/demo.py $(ARGS)

test: setup ## set everything up and run the tests: five minutes, the same cases every time
	$(STAGE) test $(ARGS)

proof: setup ## the whole sweeps, tests with several JVMs, and fresh random cases from a printed seed
	$(STAGE) proof $(ARGS)

check: setup ## format, lint, types, and the shape of the tree (layers, imports, names)
	@$(PY) -m ruff format --check --quiet . || { echo "run: $(PY) -m ruff format ." >&2; exit 1; }
	@$(PY) -m ruff check --quiet .
	@$(PY) -m mypy --no-error-summary
	@$(PY) -m pytest -q tests/shape

bench: setup ## measure against peers in the same run (ARGS="--check" fails when a bar is missed)
	@$(PY) -m bench $(ARGS)

fuzz: ## the kernel under sanitizers and fuzzers
	$(BOOTSTRAP) fuzz
	@$(PY) -m fuzz.run $(ARGS)

interop: setup ## the tests that need a real Kafka
	$(STAGE) interop $(ARGS)

nightly: setup ## the random tests, fifty times as many cases, from a printed seed
	$(STAGE) nightly $(ARGS)

wheel: setup ## a reproducible wheel in dist/
	$(BOOTSTRAP) wheel

lock: ## resolve the pinned packages anew into requirements/
	$(BOOTSTRAP) lock

clean: ## remove .venv and everything that was built
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	@rm -f src/stratalog/records/_kernel.c src/stratalog/records/_kernel.html src/stratalog/records/_kernel*.so
	@find bench fuzz src tests tools -name __pycache__ -type d -exec rm -rf {} + 2>/dev/null || true
