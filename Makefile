# make run     everything on this machine, with sample data
# make test    what a change must pass
# Needs CPython 3.11 or newer as `python3` (or PYTHON=/path/to/python) and nothing else.

PYTHON ?= python3
PYTEST_ARGS ?= -n 2
CASES ?= 50
UV ?= $(shell command -v uv || echo .venv/bin/uv)
BIN := .venv/bin
STAMP := .venv/.headway-setup

.PHONY: setup run test check bench properties faults format rooms lock clean
.DEFAULT_GOAL := test

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; ok = sys.implementation.name == "cpython" and sys.version_info >= (3, 11); sys.exit(not ok)' >/dev/null 2>&1 || { \
	  echo "headway needs CPython 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 || echo missing)." >&2; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv || { \
	  echo "'$(PYTHON) -m venv' failed: its venv or ensurepip module is missing." >&2; \
	  echo "On Debian or Ubuntu: apt install python3-venv. Elsewhere: make PYTHON=/path/to/another/python3" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-build-isolation -e .
	@touch $@

run: setup
	$(BIN)/headway dev --demo

test: setup check
	$(BIN)/python -m pytest --ignore=tests/faults $(PYTEST_ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m bench

properties: setup
	HEADWAY_CASES=$(CASES) $(BIN)/python -m pytest tests/core $(PYTEST_ARGS)

faults: setup
	$(BIN)/python -m pytest tests/faults

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

rooms: setup
	$(BIN)/python -m tests.docs.rooms

lock:
	$(UV) pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --quiet --output-file requirements.lock

clean:
	rm -rf .venv .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
