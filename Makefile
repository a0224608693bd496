PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
EXAMPLES ?= 5000
# Programs and the Debian packages that hold them: program=package
TOOLS := promtool=prometheus docker-compose=docker-compose chromium=chromium chromedriver=chromium-driver ip=iproute2 tc=iproute2

.DEFAULT_GOAL := help
.PHONY: help venv java tools lint unit test fuzz demo bench paper geo profile soak clean

help:  ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

venv: $(STAMP)  ## Install everything into .venv

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "balajoin needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "installing into .venv (a few minutes the first time)"
	@$(PYTHON) -m venv .venv \
		|| { echo "cannot create .venv: install your system's python3-venv package" >&2; exit 1; }
	@$(BIN)/pip install --quiet --editable '.[dev]' \
		|| { echo "pip could not install: check the network to your package index and run make again" >&2; exit 1; }
	@touch $@

java: $(STAMP)
	@$(BIN)/python -c 'import sys; from balajoin.spark.java import problem; sys.exit(problem())'

tools:  ## Install Debian's Prometheus, docker-compose, Chromium and iproute2, which some tests run (as root)
	@missing=""; for tool in $(TOOLS); do \
		command -v "$${tool%%=*}" >/dev/null || missing="$$missing $${tool#*=}"; done; \
	[ -z "$$missing" ] && exit 0; \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		|| { echo "not installed:$$missing; run make tools as root, on Debian or Ubuntu" >&2; exit 1; }; \
	echo "installing$$missing"; export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
	apt-get update -qq && apt-get install -qq --no-install-recommends $$missing >/dev/null  # RUNLEVEL=1: packages start no service

lint: $(STAMP)  ## Check style and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

unit: $(STAMP)  ## Run the tests that need no broker, Spark or browser, with fewer random examples (two minutes)
	@BALAJOIN_QUICK=1 $(BIN)/pytest tests/unit -n 2

# Integration tests wait more than they compute, so two processes of them and the unit tests share two cores.
test: java lint $(if $(CI),tools)  ## Check style and types, then run all tests
	@log=$$(mktemp); $(BIN)/pytest tests/unit >"$$log" 2>&1 & unit=$$!; \
	trap 'kill $$unit; rm -f "$$log"; exit 130' INT TERM; \
	$(BIN)/pytest tests/integration -n 2 --dist loadfile; integration=$$?; \
	wait $$unit; unit=$$?; cat "$$log"; rm -f "$$log"; exit $$((integration || unit))

fuzz: $(STAMP)  ## Try bad files, records and state with many more examples (EXAMPLES=5000, some minutes)
	@BALAJOIN_FUZZ=$(EXAMPLES) $(BIN)/pytest tests/unit/*/test_bad_*.py

demo: java  ## Join two skewed streams on a local broker, and watch it
	@$(BIN)/balajoin demo

bench: java  ## Run all benchmarks: throughput against Spark's own join, state, policies (an hour and a half)
	@$(BIN)/python benchmarks/service.py
	@$(BIN)/python benchmarks/latency.py
	@$(BIN)/python benchmarks/start.py
	@$(BIN)/python benchmarks/steady.py
	@$(BIN)/python benchmarks/throughput.py
	@$(BIN)/python benchmarks/sink.py
	@$(BIN)/python benchmarks/state.py
	@$(BIN)/python benchmarks/almost_empty.py
	@$(BIN)/python benchmarks/policies.py
	@$(BIN)/python benchmarks/work.py
	@$(BIN)/python benchmarks/policies_kafka.py
	@$(BIN)/python benchmarks/routing.py
	@$(BIN)/python benchmarks/metrics.py

paper: $(STAMP)  ## Compare a model of a cluster, driven by the real routing, with the paper's tables and figures (a minute)
	@PYTHONPATH=benchmarks $(BIN)/python -m paper $(PAPER)

geo: java  ## Compare joins on small nodes with slow links, as root (half an hour; all of it with GEO=--all)
	@PYTHONPATH=benchmarks $(BIN)/python -m geo $(GEO)

profile: java  ## Show where the CPU time of the service goes (two minutes; installs py-spy)
	@$(BIN)/pip install --quiet 'py-spy>=0.4,<1'
	@$(BIN)/python benchmarks/cpu_profile.py

soak: java  ## Join under load while random things break, for minutes; longer with SOAK="--minutes 60"
	@PYTHONPATH=tests:tests/support $(BIN)/python -m soak $(SOAK)

clean:  ## Remove everything made here; the jars stay in the cache
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist artifacts
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
