# What one types. Each target is a script that can be run by itself; nothing is decided here.
#
#   make demo [ARGS=--exit]   set-up, then the main job with real I/O, on one node and on three; leaves the daemons up unless --exit
#   make test                 the whole gate: set-up, build, checks, simulation, real clients, power cuts, the demo
#   make soak [MINUTES=60]    the long versions of the random tests
#   make bench [ARGS=SECTION] measured side by side with the plain storage and other servers: docs/benchmarks.md

.PHONY: help setup demo test soak bench
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

setup:
	@scripts/setup.sh

demo: setup
	@scripts/demo.sh $(ARGS)

test:
	@scripts/gate.sh $(ARGS)

soak: setup
	@scripts/soak.sh $(or $(MINUTES),60)

bench: setup
	@scripts/bench.sh $(ARGS)
