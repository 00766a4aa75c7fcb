# `make demo` and `make test` need Python 3.11 or newer and nothing else: they make .venv themselves.
# A stamp file in .venv says what is installed; delete .venv to begin anew.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The first Python that runs and is new enough; override with `make PYTHON=/path/to/python test`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
TORCH := torch==2.13.0
# Small models on few cores: more threads only wait for each other.
export OMP_NUM_THREADS ?= 1
export FLWR_TELEMETRY_ENABLED := 0

.PHONY: help demo test lint bench clean

help:
	@echo "make demo   three hospitals on this machine train one model (about a minute)"
	@echo "make test   every check: style, types, import rules, tests, coverage"
	@echo "make lint   style, types and import rules only"
	@echo "make bench  the benchmarks"
	@echo "make clean  remove what these made, .venv too"

demo: $(VENV)/demo.stamp
	@$(BIN)/python -m fedward.cli demo --folder demo-run

test: lint
	@.ci/test $(BIN)

lint: $(VENV)/test.stamp
	@$(BIN)/python .ci/links.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p fedward
	@PYTHONPATH=.links $(BIN)/lint-imports

bench: $(VENV)/test.stamp
	@for file in benchmarks/*.py; do [ -e "$$file" ] || continue; echo "== $$file"; $(BIN)/python "$$file"; done

clean:
	rm -rf $(VENV) .links demo-run build dist *.egg-info .coverage .coverage.* htmlcov
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 to 3.13 found; make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

# torch first and pinned, so that pip settles on one build of it before it looks at the rest.
$(VENV)/torch.stamp: constraints.txt | $(BIN)/python
	@echo "installing torch (once, some minutes)"
	@$(PIP) $(TORCH)
	@touch $@

$(VENV)/demo.stamp: pyproject.toml constraints.txt $(VENV)/torch.stamp
	@echo "installing fedward for the demo (once)"
	@$(PIP) -e '.[train]' scikit-learn
	@touch $@

$(VENV)/test.stamp: pyproject.toml constraints.txt $(VENV)/torch.stamp
	@echo "installing fedward with all extras (once)"
	@$(PIP) -e '.[train,postgres,dev]'
	@touch $@ $(VENV)/demo.stamp
