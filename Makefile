PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: check format
check:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
