PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Where an environment from another tool is active, it must not leak into ours.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check format clean

# The newcomer's command: sets up, fetches the embedded model, and evaluates it.
demo: $(VENV)/.demo
	$(BIN)/vfx model install
	$(BIN)/vfx eval

# Sets up and runs the tests. `make test ARGS="-k store"` runs some of them.
test: $(VENV)/.dev
	$(BIN)/pytest -n 4 $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -c constraints.txt -e '.[local]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -c constraints.txt -e '.[local,dev]'
	touch $@
