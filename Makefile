PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: help install quickstart reproduce-quick test test-gpu check audit format bench bench-peers bench-scale docs clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

install: $(STAMP)  ## create .venv and install everything into it, once

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(STAMP)

quickstart: $(STAMP)  ## run a grid on embedded data and show its results
	$(BIN)/python -m fedcome_ray.tune --grid partial_participation

reproduce-quick: $(STAMP)  ## run every grid on embedded data and write the report
	$(BIN)/python -m fedcome_ray.reproduce

test: $(STAMP) check  ## lint, types and the whole test-suite
	$(BIN)/python -m pytest

test-gpu: $(STAMP)  ## compare the GPU with the processor, measure it, print a table to paste
	$(BIN)/python -m fedcome_ray.health.gpu

check: $(STAMP)  ## lint, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: $(STAMP)  ## look for dangerous code, and for known vulnerabilities in what is installed
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive fedcome_ray analysis
	$(BIN)/pip freeze --exclude-editable | sed 's/+.*//' > .venv/installed.txt
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement .venv/installed.txt

format: $(STAMP)  ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## measure engine, consensus, starts, memory and tracking
	$(BIN)/python -m tests.benchmarks.engine --quick
	$(BIN)/python -m tests.benchmarks.consensus --quick
	$(BIN)/python -m tests.benchmarks.start
	$(BIN)/python -m tests.benchmarks.memory --rounds 1000
	$(BIN)/python -m tests.benchmarks.tracking --trials 50 --seconds 6

bench-peers: $(STAMP)  ## measure a whole training beside other frameworks, installed into .venv/peers
	$(BIN)/python -m tests.benchmarks.peers --quick

bench-scale: $(STAMP)  ## measure populations up to a million, cohorts and shards; fit and draw the model
	$(BIN)/python -m tests.benchmarks.scale --plot scaling.png

docs: $(STAMP)  ## build the documentation into site/, to be opened at site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

clean:  ## remove the environment and the caches, not the results
	rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
