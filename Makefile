# Commands of the project: `make run` runs a demonstration, `make test` the tests. Both need Python 3.11 and JDK 17.
# PYTHON=python3.13 selects another version of Python, with a virtual environment of its own.
PYTHON ?= python3
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
BIN := $(VENV)/bin
SEED ?= 1

.PHONY: setup run demo spark-cluster test test-fast lint docs jar sim soak mutate bench dist clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[spark,test,docs]"
	@if command -v krb5-config >/dev/null; then $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e ".[kerberos]" || echo "gssapi could not be built: tests with a KDC are skipped"; fi
	touch $@

run: setup
	$(BIN)/python -m spark_it.pipelines.demo metrics

demo: setup
	$(BIN)/python -m spark_it.pipelines.demo $(or $(PIPELINE),metrics) $(if $(SIZE),--size $(SIZE))

# Starts three nodes, a Spark master and two workers. PIPELINE=name or PIPELINE=all runs pipelines on them.
spark-cluster: setup
	$(BIN)/python -m spark_it.pipelines.cluster $(PIPELINE) $(if $(KILL),--kill) $(if $(SIZE),--size $(SIZE))

test: setup
	$(BIN)/python -m compat_tests.support.jars
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-fast: setup
	$(BIN)/python -m pytest -n 2 wire log controller broker ottla/env ottla/jobs ottla/runtime \
		ottla/client ottla/cli ottla/tools ottla/console sim devtools tests

lint: setup
	$(BIN)/python -m pytest tests

docs: setup
	$(BIN)/python -m sphinx -W --keep-going -q -b html -j 2 docs build/site
	@echo "the site is in build/site: open build/site/README.html"

jar: setup
	$(BIN)/python -m spark_it.ottla_log.build_jar

sim: setup
	PYTHONHASHSEED=0 $(BIN)/python -m sim --seed $(SEED)

soak: setup
	$(BIN)/python -m devtools.soak $(CAMPAIGN)

mutate: setup
	$(BIN)/python -m devtools.mutate $(UNIT)

bench: setup
	$(BIN)/python -m bench.start
	$(BIN)/python -m bench.commands
	$(BIN)/python -m bench.produce
	$(BIN)/python -m bench.groups
	$(BIN)/python -m bench.consumer_groups
	$(BIN)/python -m bench.partitions
	$(BIN)/python -m bench.lookups
	$(BIN)/python -m bench.fetch
	$(BIN)/python -m bench.tiered_store
	$(BIN)/python -m bench.spark_read
	$(BIN)/python -m bench.pipelines
	$(BIN)/python -m bench.ottla_log
	$(BIN)/python -m bench.security
	$(BIN)/python -m bench.security --checked
	$(BIN)/python -m bench.cluster

dist: setup
	$(BIN)/python -m devtools.dist --check

clean:
	rm -rf .venv* .cache ottla-data build dist *.egg-info
