# Two commands do everything on a fresh machine with Python 3.11 or newer and no root: `make demo` and `make test`.
# `make test-all` needs root and installs what its lab lacks.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The lab's vLLM is 3.3 GB and the root of its hosts 0.3 GB: they are built once and kept outside the checkout.
export EXPCTL_LAB_DIR ?= /var/tmp/expctl-lab

.PHONY: demo test test-all lint fmt clean

$(VENV)/run: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/dev: $(VENV)/run pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q --disable-pip-version-check --group test --group lint
	touch $@

demo: $(VENV)/run
	$(BIN)/expctl demo

test: $(VENV)/dev
	# Unit tests measure times, so they run alone.
	$(BIN)/python -m pytest tests/unit
	# These mostly wait for processes and disks, so that two cores carry four at a time.
	$(BIN)/python -m pytest -n 4 --dist worksteal tests/integration tests/acceptance

test-all: test
	$(PYTHON) tests/lab/make_vllm.py $(EXPCTL_LAB_DIR)
	$(PYTHON) tests/lab/make_host.py $(EXPCTL_LAB_DIR)
	$(BIN)/python -m pytest tests/lab

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
