# Each target does its own set-up in .venv, once for each state of the files that decide what is installed.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
PYTEST := OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal
STAMP := .venv/ready-$(shell { $(PYTHON) --version; cat pyproject.toml setup.py constraints.txt; } 2>/dev/null | sha256sum | cut -c1-16)

.PHONY: demo test lint fast slow test-torch test-vllm bench format clean
.DELETE_ON_ERROR:

demo: $(STAMP)
	$(BIN)/fxrewrite demo

test: lint fast slow

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/fxrewrite fmt --check patterns examples
	$(BIN)/python tools/check_holes.py
	$(BIN)/pyright

fast: $(STAMP)
	$(PYTEST) -m "not slow"

slow: $(STAMP)
	$(PYTEST) -m slow --durations=25

# The tests of the engine on another release of torch: make test-torch VERSION=2.11.0
test-torch:
	@PYTHON=$(PYTHON) sh .ci/torch $(VERSION)

# What is claimed of vLLM's CPU build, tried on it
test-vllm:
	@PYTHON=$(PYTHON) sh .ci/vllm

bench: $(STAMP)
	$(BIN)/python -m benchmarks

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/fxrewrite fmt patterns examples

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

# torch goes first and by itself: asked for through another package, pip may take a newer release of several GB.
# A venv of another Python (or a broken one) is made anew; any other is brought up to date.
$(STAMP):
	@sh .ci/need $(PYTHON)
	@rm -f .venv/ready-*
	@test "$$($(BIN)/python --version 2>/dev/null)" = "$$($(PYTHON) --version)" || $(PYTHON) -m venv --clear .venv
	@echo "setting up .venv with $$($(PYTHON) --version): a minute or two where packages are near"
	@$(PIP) torch
	@$(PIP) --editable '.[dev]'
	@touch $@
