# `make demo` and `make test` are all a newcomer needs: both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 6
# `make test COVERAGE=1` measures branches as well, and fails below the share that pyproject.toml asks for.
COVERAGE ?=

.PHONY: demo test test-matrix test-frameworks lint docs bench fuzz format clean

demo: $(VENV)/.installed
	$(BIN)/midstream demo

# Most of the time is waiting, so several tests run at once; those that measure time closely run afterwards, one by one.
test: lint
	@status=0; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m 'not alone' $(if $(COVERAGE),--cov) || status=1; \
	$(BIN)/python -m pytest -m alone || status=1; \
	exit $$status

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

test-matrix: $(VENV)/.installed-dev
	$(BIN)/nox --session sdk tests-3.10 tests-3.13

test-frameworks: $(VENV)/.installed-dev
	$(BIN)/nox --session frameworks

# The site, in site/. A link that leads nowhere is an error.
docs: $(VENV)/.installed-dev
	$(BIN)/nox --session docs

bench: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --group fuzz
	$(BIN)/python -m fuzz

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV)

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "midstream needs Python 3.10 or newer, and $(PYTHON) is older: try 'make PYTHON=python3.12 $(MAKECMDGOALS)'" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	@echo "Installing midstream into $(VENV) (once, about a minute) ..."
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need ..."
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@
