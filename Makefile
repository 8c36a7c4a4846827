# `make test` sets everything up and runs the CPU test suite; `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PINS   := $(wildcard requirements/*.txt)
READY  := $(VENV)/.test-ready

# Two pytest workers with one torch thread each use two cores better than one worker with two.
WORKERS ?= 2
PYTEST  := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help setup test test-slow check format clean

help:
	@echo "make test       set up .venv, check the code, run the CPU tests"
	@echo "make test-slow  the tests that take minutes (torch.compile of whole networks, WRN-40-4 to ONNX)"
	@echo "make check      ruff, mypy, codespell and the architecture test"
	@echo "make format     let ruff rewrite what it can"
	@echo "make clean      remove .venv, caches and builds"

setup: $(READY)

# The stamp is written last: an interrupted installation is done again, a finished one is not touched.
$(READY): $(PINS) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "asrnorm needs Python 3.11 or newer, this is %d.%d: make PYTHON=python3.12" % sys.version_info[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/test.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test: check
	$(PYTEST) -m "not slow and not gpu"

test-slow: setup
	$(PYTEST) -m "slow and not gpu"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell src docs *.md
	$(BIN)/python -m pytest -q tests/test_architecture.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
