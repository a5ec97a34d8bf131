# Everything from a bare machine with python3 (3.11 or newer) and make: `make demo`, `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BEGUN := $(VENV)/.begun
KERNELS := $(VENV)/.kernels
DEMO_HOME := .demo
# Runs what follows when no other make is at it: two would install into one environment. The lock is the Makefile's.
ALONE := -c 'import fcntl, os, sys; lock = os.open("Makefile", os.O_RDWR); fcntl.flock(lock, fcntl.LOCK_EX); \
	os.set_inheritable(lock, True); os.execvp(sys.argv[1], sys.argv[1:])'

.PHONY: demo test kernels columns sanitize soak clients lint types check clean help

help:
	@echo "make demo   create the example package with its draft, then generate text"
	@echo "make test   run the test suite"
	@echo "make kernels  compile the kernels where their sources have changed"
	@echo "make columns  compare the bits of all instruction sets (ARM: gcc-aarch64-linux-gnu, qemu-user)"
	@echo "make sanitize  run the kernels under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make check  lint, types and tests"
	@echo "make soak   the long fuzz, kill and soak tests"
	@echo "make clients  OpenAI's and Anthropic's own client tests (OPENAI_PYTHON, ANTHROPIC_PYTHON: checkouts)"
	@echo "make clean  remove the environment, the demo store and what was built"

ifndef IS_ALONE
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "modelkit needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) $(ALONE) $(MAKE) --no-print-directory IS_ALONE=1 $@

$(KERNELS): $(READY) runtime/cpu/native/building.py $(wildcard runtime/cpu/native/src/* runtime/cpu/native/src/*/*)
	@$(BIN)/python $(ALONE) $(MAKE) --no-print-directory IS_ALONE=1 $@
else
# The environment is rebuilt when pyproject.toml changes. What an installation that was stopped has left may be
# broken in any way: the next one begins anew.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV) $(if $(wildcard $(BEGUN)),--clear)
	@touch $(BEGUN)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[cpu,serve]" --group dev
	@$(BIN)/python -m compileall -q modelkit runtime || true # as pip does for a wheel: a start is half as long
	@touch $(READY) && rm $(BEGUN)

# Kernels are compiled anew when their sources change; without a compiler modelkit computes without them.
$(KERNELS): $(READY) runtime/cpu/native/building.py $(wildcard runtime/cpu/native/src/* runtime/cpu/native/src/*/*)
	@$(BIN)/python runtime/cpu/native/building.py || echo "modelkit computes without them; modelkit doctor says why"
	@touch $(KERNELS)
endif

kernels: $(KERNELS)

# The same bits from every column: those of this machine, and ARM's where a compiler and an emulator for them are.
columns: $(KERNELS)
	$(BIN)/python -m pytest -q -m slow tests/runtime/cpu/native/test_columns.py -k bits

# The same program, with what the compiler says of memory and arithmetic while it runs.
sanitize: $(KERNELS)
	$(BIN)/python -m pytest -q -m slow tests/runtime/cpu/native/test_columns.py -k sanitizers

demo: $(KERNELS)
	MODELKIT_HOME=$(DEMO_HOME) $(BIN)/modelkit create island -f Modelfile.example --quantize-draft q4
	MODELKIT_HOME=$(DEMO_HOME) $(BIN)/modelkit show island
	MODELKIT_HOME=$(DEMO_HOME) $(BIN)/modelkit run island "Tell me a story." -p seed=7 --verbose
	@echo; echo "The draft against plain decoding, on this machine:"
	@$(BIN)/python benchmarks/example_pair.py --rounds 2

test: $(KERNELS)
	@sh tests/support/get_browser.sh
	$(BIN)/python -m pytest -q -m "not slow" -n auto --maxprocesses 4 --dist worksteal

soak: $(KERNELS)
	$(BIN)/python -m pytest -q -m slow

# The official clients' own tests; OPENAI_PYTHON and ANTHROPIC_PYTHON name checkouts of openai-python and of
# anthropic-sdk-python.
clients: $(KERNELS)
	$(BIN)/python -m tests.support.openai_suite
	$(BIN)/python -m tests.support.anthropic_suite

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/basedpyright

check: lint types test

clean:
	rm -rf $(VENV) $(DEMO_HOME) build runtime/cpu/native/_kernels.* runtime/cpu/native/built.json
