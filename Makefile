# Two commands are enough: `make demo` and `make test`. Each makes .venv by itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-lowest test-spark-versions test-wheel first-ten-minutes lint format docs drawings bench plots lock java clean

VENV := .venv
PY   := $(VENV)/bin/python
# An editable install holds absolute paths, so a checkout that moved has to be installed again.
HERE    := $(shell pwd -P | cksum | cut -d' ' -f1)
RUN_OK  := $(VENV)/.installed-$(HERE)
DEV_OK  := $(VENV)/.installed-dev-$(HERE)
LOWEST    := .venv-lowest
LOWEST_OK := $(LOWEST)/.installed-$(HERE)
# Numba compiles in every test worker: more workers than cores only wait for each other.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n > 8 ? 8 : n)))
# Spark runs on Java: the script finds or installs it, or says how.
WITH_JAVA = home=$$(scripts/java.sh) || exit 1; export JAVA_HOME=$$home
# Tests of the page need a browser; without one they are skipped.
WITH_BROWSER = CHROMIUM=$$(scripts/chromium.sh) || CHROMIUM=; export CHROMIUM
NAME    ?=
ARGS    ?=

help: ## list the targets
	@echo "streamjoin: sliding-window joins over two streams"
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  PYTHON=/path/to/python3.x chooses the interpreter (3.11 or newer) for .venv"

demo: $(RUN_OK) ## set up, then join the papers' 2-D band benchmark on a local Spark (ARGS="--embedded": without)
	@case " $(ARGS) " in *" --embedded "*) ;; *) $(WITH_JAVA) ;; esac; $(PY) -m streamjoin.cli demo $(ARGS)

test: $(DEV_OK) ## set up, then run the tests (ARGS="-k name" to choose)
	@echo "==> tests, on $(WORKERS) workers"
	@$(WITH_JAVA); $(WITH_BROWSER); $(PY) -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

test-slow: $(DEV_OK) ## run only the tests marked slow
	@echo "==> slow tests"
	@$(WITH_JAVA); $(WITH_BROWSER); $(PY) -m pytest -m slow -n $(WORKERS) --dist loadgroup $(ARGS)

test-lowest: $(LOWEST_OK) ## run the tests on the lowest versions that pyproject.toml allows
	@echo "==> tests on the lowest versions, on $(WORKERS) workers"
	@$(WITH_JAVA); $(WITH_BROWSER); $(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

test-spark-versions: $(DEV_OK) ## run the core suite on each minor version of Spark, in environments of their own
	@$(WITH_JAVA); PYTHON=$(PY) scripts/spark_versions.sh $(ARGS)

test-wheel: $(DEV_OK) ## build the wheel, install it into an empty environment, and run the README's examples there
	@$(PY) -m pytest -m slow tests/test_wheel.py $(ARGS)

first-ten-minutes: ## do what a newcomer does, in a fresh clone and an empty environment, and time it
	@$(WITH_JAVA); $${PYTHON:-python3} scripts/first_ten_minutes.py

lint: $(DEV_OK) ## ruff (rules and layout) and mypy
	@echo "==> ruff check" && $(PY) -m ruff check .
	@echo "==> ruff format --check" && $(PY) -m ruff format --check .
	@echo "==> mypy" && $(PY) -m mypy

format: $(DEV_OK) ## let ruff sort imports and lay out the code
	@$(PY) -m ruff check --select I --fix . && $(PY) -m ruff format .

docs: $(DEV_OK) ## build the pages of docs/ as a site, into site/
	@$(PY) scripts/site.py

drawings: $(DEV_OK) ## draw docs/drawings/
	@$(PY) -m scripts.drawings.all

bench: $(DEV_OK) ## run every benchmark, or one: make bench NAME=three_step (ARGS=--quick)
	@$(PY) benchmarks/harness.py $(NAME) $(ARGS)

plots: $(DEV_OK) ## draw the stored results, copy their numbers into docs/lab (NAME=three_step: draw one)
	@$(PY) benchmarks/plot.py $(NAME)

lock: $(DEV_OK) ## pin the newest versions that pyproject.toml allows
	@scripts/lock.sh $(PY)

java: ## find Java 17 or newer (for Spark); install it if the package manager lets us
	@scripts/java.sh

clean: ## remove virtual environments, caches and build output
	rm -rf $(VENV) $(LOWEST) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# The package's metadata has the version of __init__.py.
$(RUN_OK): requirements.lock pyproject.toml src/streamjoin/__init__.py
	@scripts/setup.sh $(VENV) requirements.lock
	@touch $@

$(DEV_OK): requirements-dev.lock pyproject.toml src/streamjoin/__init__.py
	@scripts/setup.sh $(VENV) requirements-dev.lock
	@touch $@ $(RUN_OK)

$(LOWEST_OK): $(DEV_OK)
	@scripts/lowest.sh $(LOWEST) $(PY)
	@touch $@
