# SPDX-License-Identifier: Apache-2.0
#
# `make demo`, `make check` and `make test` do all the set-up themselves, also on a
# fresh Debian machine, and nothing twice: each step leaves a stamp file.

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_ROOT_USER_ACTION = ignore

TOOLS   := 'pip>=23.1' 'meson>=1.3' ninja 'meson-python>=0.17' 'pytest>=8' 'cloudpickle>=3'
LEARN   := 'tensorflow>=2.16' tensorboard scikit-learn pandas
CHECK   := pyarrow fsspec 'dask[dataframe]' ipykernel nbclient 'pyspark[connect]>=4' tf_keras venv-pack conda-pack \
           playwright jsonschema pyyaml matplotlib plotly jupyterlab
# Linters are pinned: what is formatted on one machine is on all.
LINT    := 'clang-format==19.1.7' 'ruff==0.17.*' 'mypy==2.4.*' 'coverage>=7.10' gcovr
SOURCES := meson.build meson_options.txt pyproject.toml \
           $(shell find src proto python bench -name '*.[ch]' -o -name '*.proto' \
                   -o -name meson.build -o -name '*.pth' -o -path 'python/*.py*' -not -name '*.pyc') \
           $(wildcard web/*.* web/src/*)

.PHONY: help setup demo check lint test test-ui bench bench-core bench-search bench-schedule bench-python bench-allreduce bench-spark bench-hdfs bench-feed bench-clients bench-ui \
        clean distclean cluster cluster-stop test-cluster coverage fuzz-coverage system-build system-test system-lint system-bench system-coverage

help:
	@echo 'make setup           installs what is missing, builds, fills .venv'
	@echo 'make demo            a grid search over a small Keras model, two trials at a time'
	@echo 'make check           what is quick, in about two minutes: C suites, corpora, Python, smoke tests'
	@echo 'make lint            clang-format, cppcheck, ruff, mypy (tools/lint --fix corrects what can be corrected)'
	@echo 'make test            every suite (T="base e2e": only these)'
	@echo 'make test-ui         the page: all tests of its server, and all pages in Chromium (make test: one of each file)'
	@echo 'make test-cluster    the suites of Spark and YARN, those for all engines whole (make test: half of these there)'
	@echo 'make coverage        lines and branches by part, C and Python; the table of CONTRIBUTING.md'
	@echo 'make fuzz-coverage   which lines of the parsers corpora and fuzzing reach (FUZZ_SECONDS=15 for each target)'
	@echo 'make bench           the figures: bench-core, -search, -schedule, -python, -allreduce, -spark, -hdfs, -feed, -clients, -ui'
	@echo 'make cluster         a Spark, a YARN and an HDFS on this machine; PART=hdfs-ha: that one (cluster-stop ends all)'
	@echo 'make clean           removes what was built (distclean: the environment too)'

setup: build/.installed

# System packages are checked every time (it is quick); they are no reason to rebuild anything.
system-build:
	@tools/setup.sh build

system-test system-lint system-bench system-coverage:
	@tools/setup.sh build $(@:system-%=%)

.venv/.tools: Makefile | system-build
	.venv/bin/python -c '' 2>/dev/null || "$$(tools/setup.sh python)" -m venv --clear .venv
	.venv/bin/python -m pip install --quiet $(TOOLS)
	@touch $@

# The packages that the web page is made of; none is needed to run it.
web/node_modules/.made: web/package-lock.json | system-build
	cd web && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

build/.installed: $(SOURCES) .venv/.tools web/node_modules/.made
	@mkdir -p build
	.venv/bin/pip install --quiet --no-build-isolation --no-deps --force-reinstall $(WARNINGS) -Cbuild-dir=build/wheel .
	@touch $@

# TensorFlow is large, and not needed to compile.
.venv/.learn: Makefile .venv/.tools
	.venv/bin/pip install --quiet $(LEARN)
	@touch $@

.venv/.check: Makefile .venv/.learn $(wildcard tests/site/*)
	.venv/bin/pip install --quiet $(CHECK)
	cp tests/site/* "$$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')"
	@touch $@

# TensorFlow's ops are also tested on the oldest TensorFlow that pip has for this Python (3.11: 2.12).
.venv-old/.made: Makefile .venv/.tools
	.venv-old/bin/python -c '' 2>/dev/null || "$$(tools/setup.sh python)" -m venv --clear .venv-old
	.venv-old/bin/pip install --quiet pytest "tensorflow-cpu==$$(.venv-old/bin/pip index versions tensorflow-cpu \
	    2>/dev/null | sed -n 's/^Available versions:.*[, ]//p')"
	@touch $@

demo: setup .venv/.learn
	@rm -rf build/demo && mkdir -p build/demo
	HOPYARD_PROJECT=build/demo .venv/bin/python examples/digits.py
	@echo 'To see the runs in the browser: .venv/bin/hopyard ui --project build/demo'

.venv/.lint: Makefile .venv/.tools
	.venv/bin/pip install --quiet $(LINT)
	@touch $@

lint: system-lint .venv/.lint
	@.venv/bin/python tools/lint

check: system-test setup .venv/.check
	@.venv/bin/python tests/run check

# What it has to build is built once, and without warnings (tests/run checks that); other compilers may have new ones.
test: WARNINGS := -Csetup-args=-Dwerror=true
test: system-test system-lint setup .venv/.lint .venv/.check .venv-old/.made
	@.venv/bin/python tests/run $(T)

test-ui: system-test setup .venv/.check
	@HOPYARD_TEST_UI=all .venv/bin/python tests/run $(patsubst tests/%,%,$(wildcard tests/e2e/test_ui*.py tests/e2e/test_jupyter.py))

fuzz-coverage: system-coverage .venv/.tools
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-15} .venv/bin/python tests/run fuzz-coverage

coverage: system-test system-coverage setup .venv/.check .venv/.lint .venv-old/.made
	@.venv/bin/python tests/run coverage

CLUSTERS := $(patsubst tests/%,%,$(wildcard $(patsubst %,tests/e2e/test_%*.py,engines executors cluster tfcluster spark yarn hdfs gfile feeds tfrecord_spark)))

test-cluster: system-test setup .venv/.check
	@HOPYARD_TEST_CLUSTER=all .venv/bin/python tests/run $(CLUSTERS)

# Its addresses are in build/cluster/cluster.json. PART=hdfs, hdfs-ha or hdfs-kerberos: that one.
cluster: system-test .venv/.check
	@.venv/bin/python tests/cluster/cluster.py start $(PART)

cluster-stop:
	@[ ! -e build/cluster ] || python3 tests/cluster/cluster.py stop

bench: bench-core bench-search bench-schedule bench-python bench-allreduce bench-spark bench-hdfs bench-feed bench-clients bench-ui

bench-core: system-bench setup
	.venv/bin/python bench/core.py

bench-search: setup
	@.venv/bin/python -c 'import scipy' 2>/dev/null || .venv/bin/pip install --quiet scipy
	@.venv/bin/python -c 'import optuna, sklearn' 2>/dev/null || .venv/bin/pip install --quiet optuna scikit-learn
	.venv/bin/python bench/search.py
	.venv/bin/python bench/importance.py

bench-schedule: setup
	.venv/bin/python bench/schedule.py build/wheel/bench_schedule

bench-python: setup .venv/.learn
	.venv/bin/python bench/python.py

# PEER=horovod: builds Horovod and runs it beside.
bench-allreduce: system-bench setup .venv/.learn
	.venv/bin/python bench/allreduce.py

bench-spark: system-test setup .venv/.check
	.venv/bin/python bench/spark.py

bench-hdfs: system-test system-bench setup .venv/.check
	.venv/bin/python bench/hdfs.py

bench-feed: system-test system-bench setup .venv/.check
	.venv/bin/python bench/feed.py

bench-clients: setup
	.venv/bin/python bench/clients.py

bench-ui: system-test system-bench setup .venv/.check
	.venv/bin/python bench/ui.py

clean: cluster-stop
	rm -rf build bench/results

distclean: clean
	rm -rf .venv .venv-old
