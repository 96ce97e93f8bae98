# Two commands on a fresh machine: `make demo` and `make test`. Both need only make and Python 3.11
# to 3.14; everything else goes into .venv, from the lock files in requirements/ (hashes checked).
# `make test-oracles` has an environment of its own, .venv-oracles, with PyTorch and other programs.
# Without make: python3 -m venv .venv; .venv/bin/pip install -e '.[demo]'; .venv/bin/pellucid demo

VENV    := .venv
BIN     := $(VENV)/bin
STAMPS  := $(VENV)/made
ORACLES := .venv-oracles
PIP     := python -m pip --disable-pip-version-check --quiet --quiet
# pip resolves nothing here: the lock is complete, so --no-deps is both faster and stricter.
LOCKED  := install --require-hashes --no-deps --no-compile --requirement
EDITABLE := install --no-deps --no-build-isolation --editable .
# The version that the tests compare with. pip takes the build with CUDA, several GB, unless it knows
# of another: TORCH='torch==2.13.0 OPTIONS OF PIP' names one, for example a wheel for CPUs.
TORCH   := torch==2.13.0
# The Pythons for which every locked package has a wheel.
ACCEPTED := python3.11 python3.12 python3.13 python3.14
# As many processes as processors, with one thread each; tests marked `alone` run by themselves.
PARALLEL := OMP_NUM_THREADS=1
SPREAD  := -n auto --dist worksteal -m "not alone and not wheel"
# Their files alone: to collect the rest as well takes longer than to run them.
ALONE   := -m alone $$(grep -rl --include='*.py' 'mark\.alone' tests)

# Images of containers set it: then every process compiles all modules that it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo chat quick test test-oracles test-pythons test-processors test-built test-wasm test-course kernels docs wheel \
        release setup setup-demo moved \
        lint types format lock clean
.DEFAULT_GOAL := help

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup-demo  ## Train two Transformers on real data, about five minutes with the install
	@$(BIN)/pellucid demo

CHAT := runs/$(or $(RECIPE),chatbot-ko)
chat: setup-demo  ## Train the Korean chatbot (five minutes; RECIPE=chatbot-ko-article: article 003's) and talk
	@test -d $(CHAT)/model || $(BIN)/pellucid train \
	    $$(test -f $(CHAT)/config.toml && echo --resume $(CHAT) || echo $(notdir $(CHAT)))
	@$(BIN)/pellucid generate $(CHAT)

quick:  ## Run the tests that mirror what changed, after `make setup`
	@$(BIN)/python -m ruff check .
	@$(BIN)/python scripts/mirrored.py

test: setup lint types  ## Lint, check the types, run every test that needs nothing else
	@$(BIN)/python -m pytest $(ALONE)
	@$(PARALLEL) $(BIN)/python -m pytest $(SPREAD)

test-oracles: $(ORACLES)/made  ## Run the tests that compare with PyTorch and other programs (2.7 GB)
	@$(ORACLES)/bin/python -m pytest --oracles $(ALONE)
	@$(PARALLEL) $(ORACLES)/bin/python -m pytest --oracles $(SPREAD) tests

test-pythons: setup  ## Try the other Pythons of this machine, and the oldest packages allowed (PYTHONS="...")
	@$(PARALLEL) $(BIN)/python scripts/test_pythons.py $(or $(PYTHONS),$(ACCEPTED))

test-processors: setup  ## Run the kernels' tests again, compiled for AVX-512, AVX2 and SSE
	@$(PARALLEL) $(BIN)/python scripts/processors.py $(SPREAD)

test-wasm:  ## Test ops, layers, exercises and every kernel in WebAssembly (needs Node; 500 MB)
	@if command -v node > /dev/null || [ -n "$(REQUIRE)" ]; then \
	    $(MAKE) --no-print-directory kernels TARGETS=wasm32 && $(BIN)/python scripts/test_wasm.py; \
	else echo "make test-wasm: Node is not installed (20 or newer); nothing was run"; fi

# TRAIN=--train: the right answers then train a Transformer in the page, some minutes more.
test-course: setup  ## Use the site's workbench in Chromium and Firefox: every exercise, every named mistake
	@$(BIN)/python scripts/test_course.py $(TRAIN)

# Those of this processor's best level and of the least; AArch64's in qemu-aarch64, where it is
# installed. LEVELS="x86_64-linux-avx512 ..." tests others.
test-built: kernels  ## Run the kernels' tests on those built ahead of time: the same bits, or in qemu
	@$(BIN)/python scripts/kernels_elsewhere.py $(LEVELS) aarch64-linux-neon

LEVELS = best x86_64-linux-avx2

# It links with Zig's linker, which nothing else needs (400 MB, in build/ziglang).
kernels: setup build/ziglang/made  ## Compile the kernels ahead of time (TARGETS="...": a part of them)
	@PYTHONPATH=build/ziglang $(BIN)/python scripts/build_kernels.py $(TARGETS)

build/ziglang/made: requirements/kernels.txt | $(STAMPS)/venv
	@rm -rf build/ziglang
	@$(BIN)/$(PIP) $(LOCKED) $< --target build/ziglang
	@touch $@

lint: setup
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .

types: setup
	@$(BIN)/python -m mypy

format: setup  ## Format the code and fix what ruff can fix
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

# Its workbench takes Python from the site itself (26 MB, from the package index by hash). Another
# place: PELLUCID_PYODIDE=https://cdn.jsdelivr.net/pyodide/v0.27.7/full/, a folder, or none.
docs: setup  ## Build the documentation site in build/site and check its links
	@[ -n "$$PELLUCID_PYODIDE" ] || $(BIN)/python scripts/test_wasm.py install
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@$(BIN)/python scripts/website/links.py build/site

# The wheel for all systems has every kernel in the language of LLVM (scripts/prepare_kernels.py),
# those for Linux have them compiled (scripts/build_kernels.py). This machine's is tried without
# Numba; scripts/try_aarch64.sh tries AArch64's in qemu.
# The dependencies are those of the lock; the wheel itself is installed without an index. Nothing of
# the checkout is on the path: the commands run in a folder of their own.
wheel: setup kernels  ## Build the wheels and try them in an environment of their own
	@$(BIN)/python scripts/prepare_kernels.py
	@$(BIN)/python -m pytest --quiet tests/kernels/backend/test_prepared.py
	@rm -rf build/wheel && mkdir -p build/wheel
	@$(BIN)/python -m hatchling build --target wheel --directory build/wheel > /dev/null
	@$(BIN)/python -m venv build/wheel/venv
	@build/wheel/venv/bin/python -m pip --disable-pip-version-check --quiet \
	    $(LOCKED) requirements/demo.txt
	@$(TRY) $$(ls build/wheel/*-any.whl)
	@cd build/wheel && venv/bin/pellucid --help > /dev/null && venv/bin/pellucid recipes > /dev/null \
	    && $(CHECK)
	@$(BIN)/python scripts/build_kernels.py --wheel $$(ls build/wheel/*-any.whl)
	@linux=$$(ls build/wheel/*-manylinux*_$$(uname -m).whl 2> /dev/null) || exit 0; \
	    $(INSTALL) uninstall --yes numba llvmlite && $(TRY) --force-reinstall $$linux && cd build/wheel && $(CHECK)
	@rm -rf build/wheel/venv build/wheel/check.txt

INSTALL = build/wheel/venv/bin/python -m pip --disable-pip-version-check --quiet
TRY = $(INSTALL) install --no-index --no-deps --no-compile
CHECK = venv/bin/pellucid check --all > check.txt && tail -n 2 check.txt \
        && venv/bin/python -c "$$THREE_LINES"

define THREE_LINES
import numpy as np, pellucid
y, backward = pellucid.nn.Linear(3, 2).forward(np.ones((4, 3), np.float32))
assert backward(np.ones_like(y)).shape == (4, 3) and "site-packages" in pellucid.__file__
endef
export THREE_LINES

release: wheel  ## Build what is published, twice, in build/release; CONTRIBUTING says how to publish
	@$(BIN)/python scripts/release.py build

setup: $(STAMPS)/dev  ## Create .venv with everything the tests need

setup-demo: $(STAMPS)/demo

$(STAMPS)/dev: $(STAMPS)/demo requirements/dev.txt
	@echo "Installing what the tests need into $(VENV)"
	@$(BIN)/$(PIP) $(LOCKED) requirements/dev.txt
	@touch $@

$(STAMPS)/demo: $(STAMPS)/venv requirements/demo.txt pyproject.toml
	@echo "Installing Pellucid into $(VENV)"
	@$(BIN)/$(PIP) $(LOCKED) requirements/demo.txt
	@$(BIN)/$(PIP) $(EDITABLE)
	@pwd -P > $@

$(ORACLES)/made: requirements/oracles.txt pyproject.toml | $(STAMPS)/venv
	@echo "Installing PyTorch and the other programs that tests compare with into $(ORACLES)"
	@rm -rf $(ORACLES) && $(BIN)/python -m venv $(ORACLES)
	@$(ORACLES)/bin/$(PIP) $(LOCKED) requirements/oracles.txt
	@$(ORACLES)/bin/$(PIP) install --no-compile $(TORCH)
	@$(ORACLES)/bin/$(PIP) $(EDITABLE)
	@if command -v npm > /dev/null; then cd viewer && npm ci --silent; fi
	@pwd -P > $@

# The installed package points to this folder; a checkout that was moved is installed again.
ifneq ($(shell cat $(STAMPS)/demo 2>/dev/null),$(CURDIR))
$(STAMPS)/demo: moved
endif
ifneq ($(shell cat $(ORACLES)/made 2>/dev/null),$(CURDIR))
$(ORACLES)/made: moved
endif

# A name on the path proves nothing (a version manager's shim has every name), so each candidate
# is run; PYTHON=/path/to/python chooses one.
CANDIDATES = $(or $(PYTHON),$(ACCEPTED) python3 python)
$(STAMPS)/venv:
	@for python in $(CANDIDATES); do \
	    version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) \
	        || continue; \
	    case " $(ACCEPTED) " in *" python$$version "*) ;; \
	        *) others="$$others; $$python is $$version"; continue;; esac; \
	    if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	        lacking=$${lacking:-$$version}; continue; \
	    fi; \
	    echo "Creating $(VENV) with $$("$$python" --version) ($$python)"; \
	    rm -rf $(VENV) && "$$python" -m venv $(VENV) && mkdir $(STAMPS) && touch $@ && exit 0; \
	    exit 1; \
	done; \
	if [ -n "$$lacking" ]; then \
	    echo "Found Python $$lacking, but without its module venv. Install that" >&2; \
	    echo "(Debian, Ubuntu: apt install python$$lacking-venv)" >&2; \
	else \
	    echo "Pellucid needs Python 3.11 to 3.14, but found none that runs; tried" >&2; \
	    echo "    $(CANDIDATES)$$others" >&2; \
	    echo "Install one (Debian 12 or newer, Ubuntu 24.04 or newer: apt install python3 python3-venv)" >&2; \
	fi; \
	echo "or give the path of another: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
	exit 1

lock:  ## Resolve the lock files again (needs uv)
	@uv pip compile pyproject.toml requirements/build.in $(EXTRAS) \
	    --output-file requirements/dev.txt $(LOCK_FLAGS)
	@uv pip compile pyproject.toml requirements/build.in --extra demo \
	    --constraint requirements/dev.txt --output-file requirements/demo.txt $(LOCK_FLAGS)
	@uv pip compile requirements/kernels.in --output-file requirements/kernels.txt $(LOCK_FLAGS)
	@uv pip compile pyproject.toml requirements/build.in requirements/oracles.in $(EXTRAS) \
	    --constraint requirements/dev.txt --override requirements/overrides.in \
	    --output-file requirements/oracles.txt $(LOCK_FLAGS)

EXTRAS = $(addprefix --extra ,demo docs eval lab serve test dev)
LOCK_FLAGS = --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
             --no-emit-find-links --no-emit-package pip --no-header --no-annotate --quiet

clean:  ## Remove the environments and the caches; runs/ is kept
	rm -rf $(VENV) $(ORACLES) .mypy_cache .pytest_cache .ruff_cache .hypothesis
