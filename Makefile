PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help venv java lint test demo bench clean

help:  ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

venv: $(STAMP)  ## Install everything into .venv

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "balajoin needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "installing into .venv (the first time a few minutes)"
	@$(PYTHON) -m venv .venv \
		|| { echo "no virtual environment in .venv: install your system's python3-venv package" >&2; exit 1; }
	@$(BIN)/pip install --quiet --editable '.[dev]' \
		|| { echo "pip could not install: check the network to your package index and run make again" >&2; exit 1; }
	@touch $@

java: $(STAMP)
	@$(BIN)/python -c 'import sys; from balajoin.broker.java import problem; sys.exit(problem())'

lint: $(STAMP)  ## Check style and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

test: java lint  ## Check style and types, then run all tests
	@$(BIN)/pytest

demo: java  ## Join two skewed streams in a broker of its own and watch it
	@$(BIN)/balajoin demo

bench: java  ## Measure throughput against Spark's own join, state, and what each policy does to skew (an hour)
	@$(BIN)/python benchmarks/throughput.py
	@$(BIN)/python benchmarks/sink.py
	@$(BIN)/python benchmarks/state.py
	@$(BIN)/python benchmarks/policies.py
	@$(BIN)/python benchmarks/policies_kafka.py
	@$(BIN)/python benchmarks/routing.py

clean:  ## Remove everything made here; the jars stay in the cache
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist artifacts
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
