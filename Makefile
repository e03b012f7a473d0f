# rostrum: what people type. The work is done by meson, .ci/setup and .ci/test.
PYTHON := build/venv/bin/python
ARGS ?=

.PHONY: help setup build jvm packages demo bench test lint count fuzz p4 lock bom clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## install Debian packages (as root) and the Python environment in build/venv
	@.ci/setup

build: setup  ## build the agent and its library in build/agent, compile the manager
	@test -f build/agent/agent/daemon/rostrumd || echo "build: the agent, into build/agent"
	@test -f build/agent/build.ninja || meson setup build/agent --buildtype=debugoptimized >build/meson-agent.log || \
		{ cat build/meson-agent.log; exit 1; }
	@ninja -C build/agent >build/ninja-agent.log || { tail -40 build/ninja-agent.log; exit 1; }
	@.ci/compile || echo "build: goes on with the manager as plain Python"

jvm:  ## the Java client: build/rostrum-client.jar, and its javadoc in build/jvm/doc (installs a JDK, as root)
	@.ci/jvm

packages: build  ## Debian packages and wheels, into build/packages
	@$(PYTHON) .ci/package $(ARGS)

demo: build  ## one object to six servers through an emulated optical circuit; ARGS="--size 512M --receivers 3"
	@build/venv/bin/rostrum lab run demo $(ARGS)

bench: build  ## one object to many, beside the tools people use (as root; hours); ARGS=--quick for under 5 minutes
	@build/venv/bin/rostrum bench datapath $(ARGS)

test: setup  ## all tests and checks (as root for those on real switches); ARGS="unit fuzz" for some groups
	@.ci/test $(ARGS)

lint: setup  ## formatters, linters, type checkers; of a built agent its circles, arrows and counts
	@.ci/test lint
	@test ! -f build/agent/build.ninja || $(PYTHON) -m tests.tidy.house

count:  ## lines of product code by folder, now and at b5bbc66
	@.ci/count $(ARGS)

fuzz: setup  ## every fuzz target for two minutes, from the corpus that earlier runs left in build/fuzz-corpus
	@.ci/test fuzz --fuzz-seconds 120

p4:  ## compile the switches' P4 program into p4src/build (needs p4c)
	@python3 p4src/compile.py

lock:  ## resolve requirements.in into requirements.lock, and renew the hashes of all lock files
	@.ci/lock $(ARGS)

bom:  ## the bill of materials, CycloneDX: build/bom.json
	@.ci/bom $(ARGS)

clean:  ## remove everything built
	rm -rf build
