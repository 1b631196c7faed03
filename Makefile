# redalg's commands. Each makes .venv first where it is missing, or older than pyproject.toml or constraints.txt.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
OTHERS  := .venv-integration
FAMILIES ?= all
ROWS    ?=
ASKED   ?=
RESULTS ?= benchmarks/results
GIB     ?= 10
FAST    := -m "not gpu and not slow"

export PYTHONUNBUFFERED := 1
export HYPOTHESIS_PROFILE ?= ci
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint format types unit notebooks docs look links slow random integration wheels gpu budget fuzz fuzz-ranks replay architecture golden bench models step parquet readme accuracy sanitize fit cold clean

help:       ## list the targets
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

demo: $(STAMP)       ## derive attention, run it, compare it with PyTorch
	$(BIN)/python -m redalg demo

test: lint types unit      ## what CI runs: lint, types, tests, doctests, notebooks

lint: $(STAMP)       ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)       ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)       ## mypy --strict
	$(BIN)/mypy --num-workers auto

unit: $(STAMP)       ## the tests that need no GPU and little time, on every core
	$(BIN)/python -m pytest $(FAST) --numprocesses auto --dist worksteal

notebooks: $(STAMP)       ## execute the notebooks on the CPU
	$(BIN)/python -m pytest tests/surface/test_notebooks.py

docs: $(STAMP)       ## build the site into build/docs; warnings are errors
	$(BIN)/python -m docs.generate html

look: $(STAMP)       ## every page of the built site in a headless Chromium (one must be installed): what is cut off or broken
	$(BIN)/python -m docs.generate look

links: $(STAMP)       ## ask for every address outside of the site that its pages name
	$(BIN)/python -m docs.generate links

slow: $(STAMP)       ## every test that needs no GPU, every case of a sweep and every draw (some hours)
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m "not gpu" --numprocesses auto --dist worksteal tests

random: $(STAMP)       ## the property tests on new examples in every run; what fails is kept in .hypothesis, and tried first
	HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest -m "hypothesis and not gpu and not slow" --numprocesses auto --dist worksteal tests

integration: $(OTHERS)/.installed       ## whole models, clusters of dask and Ray, Gloo ranks of 4 and 8, a Parquet file of 1 GiB, in an environment of their own (some minutes)
	$(OTHERS)/bin/python -m pytest tests/integration
	$(OTHERS)/bin/python -m pytest -n 0 -m "slow and not gpu" tests/distributed

wheels: $(STAMP)       ## build the archives, install each extra into a clean environment and try it (minutes each; ASKED="torch" for some)
	$(BIN)/python -m tests.wheels $(ASKED)

gpu: $(STAMP)       ## the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu tests

budget: $(STAMP)       ## time budgets: import and analysis
	$(BIN)/python -m tests.budget

fuzz: $(STAMP)       ## random cascades, their verdicts and results (ASKED="--seconds 600 --seed 7")
	$(BIN)/python -m tests.fuzz $(ASKED)

fuzz-ranks: $(STAMP) ## random cascades across ranks of Gloo (ASKED="--cases 200 --seed 7")
	$(BIN)/python -m tests.fuzz.ranks $(ASKED)

replay: $(STAMP)       ## the diff of all kernels' sources between two commits (ASKED="HEAD~3 HEAD")
	$(BIN)/python -m tests.replay diff $(ASKED)

architecture: $(STAMP) ## rewrite docs/ARCHITECTURE.md from the modules' docstrings
	$(BIN)/python -m tests.house.architecture

golden: $(STAMP)       ## rewrite tests/golden from what the code prints now; read the diff
	$(BIN)/python -m pytest $(FAST) --update-golden tests

bench: $(STAMP)       ## measure against peers, as JSON and a table (FAMILIES="mha" ROWS="H1 H2" for some)
	$(BIN)/python -m benchmarks run $(FAMILIES) $(if $(ROWS),--rows $(ROWS)) --out $(RESULTS)

accuracy: $(STAMP)       ## errors of redalg and its peers against float64, judged (FAMILIES="mha rows" for some)
	$(BIN)/python -m benchmarks judge $(filter-out all,$(FAMILIES)) --out $(RESULTS)

sanitize: $(STAMP)       ## every kind of kernel under compute-sanitizer (needs a GPU and the CUDA toolkit)
	$(BIN)/python -m tests.sanitize --out $(RESULTS)

fit: $(STAMP)       ## the cost model's constants beside their training data (benchmarks/data), and the report's hash
	$(BIN)/python -m benchmarks fit

cold: $(STAMP)       ## first results of fresh processes, and the host's time for a call
	$(BIN)/python -m benchmarks run cold --out $(RESULTS)

models: $(STAMP)       ## whole models through torch.compile(backend="redalg"), beside torch.compile
	$(BIN)/python -m benchmarks models --out $(RESULTS)

step: $(STAMP)       ## a training step of a small language model, beside torch.compile
	$(BIN)/python -m benchmarks step --out $(RESULTS)

parquet: $(STAMP)    ## statistics of a Parquet file of 10 GiB by two cores with 2 GiB of memory (GIB=1 for a smaller one)
	$(BIN)/python -m benchmarks run parquet --gib $(GIB) --out $(RESULTS)

readme: $(STAMP)       ## make README's tables, docs/BENCHMARKS.md and its pictures from benchmarks/results and benchmarks/data
	$(BIN)/python -m benchmarks report

clean:       ## remove .venv, caches and build outputs
	rm -rf $(VENV) $(OTHERS) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(STAMP): EXTRA := dev
$(OTHERS)/.installed: EXTRA := integration
$(STAMP) $(OTHERS)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "redalg needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing redalg and its tools into $(@D) (some minutes the first time)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --constraint constraints.txt --editable '.[$(EXTRA)]'
	@touch $@
