# `make test` sets everything up and runs the CPU test suite; `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PINS   := $(patsubst %,requirements/%.txt,build torch run data test cuda)
READY  := $(VENV)/.test-ready
DEMO   := $(VENV)/.demo-ready
CLUSTER := $(VENV)/.cluster-ready
FRAMEWORKS := $(VENV)/.frameworks-ready
SITE   := $(VENV)/.docs-ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CHECK  := $(BIN)/python -m pip --disable-pip-version-check check

PINNED := $(PIP) --require-hashes --no-deps

# Every file is checked against the hashes beside its pin. Where pip's settings name a folder of wheels (find-links) with
# a build of torch, that one is taken; PyPI's build for Linux needs CUDA's libraries beside it, others do not.
define install
@$(PINNED) --no-index -r requirements/torch.txt 2>/dev/null || true
$(PINNED) -r requirements/$(1).txt
@if $(CHECK) | grep 'requires cuda' >/dev/null; then echo "$(PINNED) -r requirements/cuda.txt"; $(PINNED) -r requirements/cuda.txt; fi
$(PIP) --no-deps --no-build-isolation -e .
@$(CHECK)
endef

# Two pytest workers with one torch thread each use two cores better than one worker with two.
WORKERS ?= 2
PYTEST  := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Inputs of `make fuzz` and kills of `make torture`, both in this many processes: make fuzz INPUTS=1000000 SECONDS=86400
INPUTS  ?= 50000
KILLS   ?= 20
SECONDS ?= 600
SEED    ?= 0
PROCESSES ?= $(WORKERS)
HARM    := OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m

.PHONY: help setup demo test test-slow test-frameworks test-gpu fuzz torture check format pins pages docs dist clean

help:
	@echo "make demo       set up .venv and train on one domain in seven ways, compare them on four unseen ones"
	@echo "make test       set up .venv, check the code, run the CPU tests"
	@echo "make test-slow  the tests that take minutes (WRN-40-4 to ONNX, a Ray cluster that loses a machine, the wheel)"
	@echo "make test-frameworks  the examples, trackers and Hub folders with the libraries themselves"
	@echo "make test-gpu   the tests that need a CUDA device"
	@echo "make fuzz       damaged files and hostile calls for every reader (INPUTS, SECONDS, SEED, PROCESSES)"
	@echo "make torture    kill every command that writes files, and training in its phases (KILLS, SECONDS, SEED, PROCESSES)"
	@echo "make check      ruff, mypy, codespell and the architecture test"
	@echo "make format     let ruff rewrite what it can"
	@echo "make pins       write the hashes of the pinned requirements anew, after a version was changed (WHEELS)"
	@echo "make pages      write the tables and figures of the docs anew from results/ and bench/results/"
	@echo "make docs       build the documentation into site/"
	@echo "make dist       build wheel and source archive into dist/, install the wheel elsewhere and run the demo from it"
	@echo "make clean      remove .venv, caches and builds"

setup: $(READY)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "asrnorm needs Python 3.11 or newer, this is %d.%d: make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

# A stamp is written last: an interrupted installation is done again, a finished one is not touched.
$(READY): $(PINS) pyproject.toml | $(BIN)/python
	$(call install,test)
	@touch $@ $(DEMO)

$(DEMO): $(filter-out requirements/test.txt,$(PINS)) pyproject.toml | $(BIN)/python
	$(call install,data)
	@touch $@

$(SITE): requirements/docs.txt | $(BIN)/python
	$(PIP) -r requirements/docs.txt
	@touch $@

demo: $(DEMO)
	$(BIN)/asrnorm demo

test: check
	$(PYTEST) -m "not slow and not gpu and not network"

$(CLUSTER): requirements/cluster.txt | $(READY)
	$(PIP) -r requirements/cluster.txt
	@touch $@

test-slow: $(CLUSTER)
	$(PYTEST) -m "slow and not gpu"

$(FRAMEWORKS): requirements/frameworks.txt | $(READY)
	$(PIP) -r requirements/frameworks.txt
	@touch $@

test-frameworks: $(FRAMEWORKS)
	$(PYTEST) tests/test_examples.py tests/unit/training/test_trackers.py tests/unit/models/test_hub.py

# One worker: tests that share a device wait for each other's memory.
test-gpu: setup
	$(BIN)/python -m pytest -m gpu

fuzz: setup
	$(HARM) helpers.fuzz $(INPUTS) $(SECONDS) $(SEED) -j $(PROCESSES)

torture: setup
	$(HARM) helpers.torture $(KILLS) $(SECONDS) $(SEED) -j $(PROCESSES)
	folder=$$(mktemp -d); $(HARM) helpers.kill_run $$folder $$((10 * $(KILLS))) $(SECONDS) $(SEED) -j $(PROCESSES); status=$$?; \
	rm -rf $$folder; exit $$status

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell src docs *.md
	$(BIN)/python -m pytest -q tests/test_architecture.py

# After a version in requirements/ was changed, with the network; WHEELS: files that the index does not have.
pins: setup
	$(BIN)/python -m tools.pin_hashes $(WHEELS)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Pages first, then the figures that their tables link to, then the tables.
pages: setup
	$(BIN)/python -m tools.study_pages
	$(BIN)/python -m tools.result_figures
	$(BIN)/python -m tools.result_tables
	$(BIN)/python -m tools.readme_figure
	$(BIN)/python -m tools.selection_proxies
	$(BIN)/python -m tools.bench_tables
	$(BIN)/python -m tools.bench_plot
	$(BIN)/python -m tools.augmentation_sheet

# The pages need no torch. The variable silences the theme's advertisement of its successor. Not --quiet: that hides
# the warnings from --strict too.
docs: $(SITE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	@echo "site/index.html"

# The wheel is built from the source archive, so both are complete.
dist: setup
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m tools.check_dist dist

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
