# The commands of daily work; scripts/ does it. 'make help' lists them.
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash

.PHONY: help build all cuda quickstart test slow cluster install bench sanitize format format-check lint tidy layers docs check clean

help:  ## list these commands
	@echo 'make quickstart   set up, build, train a small model, let it write (start here)'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / && $$1 != "quickstart" {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'TORCH_PYTHON=…  a python that has torch 2.13 or newer, instead of installing it into .venv'
	@echo 'PREFIX=…        where make install puts the program; TORCH_LIBS=link links torch instead of copying it'
	@echo 'TESSERA_JOBS=N  compilers at once (default: by processors and memory)'

build:  ## set up what is missing, and build build/tessera and its engine
	@scripts/build.sh release tessera tessera_engine

all:  ## build everything, the tests too
	@scripts/build.sh release

cuda:  ## build for NVIDIA GPUs in build-cuda/ (fetches 3 GB once; needs neither a toolkit nor a GPU)
	@scripts/build.sh cuda

quickstart: build  ## set up, build, train a small model, let it write
	build/tessera train configs/quickstart.yaml --fresh
	build/tessera generate runs/quickstart --prompt 'The ' --max-new-tokens 100 --seed 1

test: all  ## run all tests but the slow ones
	@scripts/test.sh release -LE slow

slow: all  ## run the slow tests
	@scripts/test.sh release -L slow

cluster: build  ## train over two hosts of a real Slurm, made on this machine (root; minutes)
	@scripts/setup.sh cluster || echo 'make cluster: what needs these packages is skipped'
	@python3 tests/cluster/run.py

install: build  ## make PREFIX=/a/folder runnable without this one; TORCH_LIBS=copy|link
	@[ -n '$(PREFIX)' ] || { echo 'error: no PREFIX. For example: make install PREFIX=$$HOME/tessera' >&2; exit 2; }
	@TORCH_LIBS='$(TORCH_LIBS)' cmake --install build --prefix "$$(realpath -m -- '$(PREFIX)')"

bench: build  ## run the benchmarks (minutes, on an idle machine)
	@scripts/bench.sh

sanitize:  ## run unit tests under the address, undefined-behaviour and thread sanitizers (slow to build)
	@scripts/sanitize.sh all

format:  ## lay out all C++ files
	@scripts/format.sh

format-check:  ## say which C++ files are not laid out
	@scripts/format.sh --check

lint:  ## clang-tidy on files changed since main's last commit, and the layer check
	@scripts/check_layers.sh
	@scripts/lint.sh changed

tidy:  ## clang-tidy on all files (half a minute for each that includes torch)
	@scripts/lint.sh all

layers:  ## check includes against the layers, and the rules that grep can prove
	@scripts/check_layers.sh

docs: build  ## run the commands of README.md and docs/, and check their links
	@python3 scripts/check_docs.py

check:  ## what CI runs
	@bash .ci/run

clean:  ## remove what builds made (.venv and runs/ stay)
	rm -rf build build-cuda build-asan build-tsan build-dev build-asan-core build-tsan-core
