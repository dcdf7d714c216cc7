# Two commands do everything on a fresh machine with Python 3.11 or newer and no root: `make demo` and `make test`.
# `make test-all` needs root and installs what its lab lacks.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The lab's vLLM is 3.3 GB, its llama.cpp and the root of its hosts 0.3 GB each: they are built once and kept outside the checkout.
export EXPCTL_LAB_DIR ?= /var/tmp/expctl-lab

.PHONY: demo test test-all chaos lint fmt clean

$(VENV)/run: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/dev: $(VENV)/run pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q --disable-pip-version-check --group test --group browser --group lint
	touch $@

demo: $(VENV)/run
	$(BIN)/expctl demo

test: $(VENV)/dev
	# The load client and the simulated engine are held to real times, so their tests run alone.
	$(BIN)/python -m pytest tests/unit/bench tests/unit/sim
	# The others often wait for processes and disks, so that two cores carry four at a time.
	$(BIN)/python -m pytest -n 4 --dist worksteal --ignore=tests/unit/bench --ignore=tests/unit/sim --on sqlite tests/unit tests/integration tests/acceptance

test-all: test
	# What stands on a database, on the other one; and what costs a minute.
	$(BIN)/python -m pytest -n 4 --dist worksteal --on postgresql tests/integration tests/acceptance
	# Every page in a real browser, during a simulated night.
	command -v chromium >/dev/null || { apt-get update -q && apt-get install -y -q chromium; }
	$(BIN)/python -m pytest tests/browser
	$(PYTHON) tests/lab/make_vllm.py $(EXPCTL_LAB_DIR)
	$(PYTHON) tests/lab/make_llamacpp.py $(EXPCTL_LAB_DIR)
	$(PYTHON) tests/lab/make_host.py $(EXPCTL_LAB_DIR)
	# A file a worker: its tests may share a host or a service, and most of the time they wait.
	$(BIN)/python -m pytest -n 3 --dist loadfile tests/lab

chaos: $(VENV)/dev
	# Every fault at every place, about half an hour; the lab's tests take a sample of it. Needs what test-all has built.
	$(BIN)/python -m tests.lab.chaos

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell

fmt: $(VENV)/dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache build dist
