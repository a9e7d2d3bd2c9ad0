# Everything a newcomer needs: `make run` shows it work, `make test` proves it. Python 3.11 and a JDK 17 must be there.
# PYTHON=python3.13 takes another Python, in an environment of its own.
PYTHON ?= python3
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
BIN := $(VENV)/bin
SEED ?= 1

.PHONY: setup run test test-fast lint sim soak mutate bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[spark,test]"
	touch $@

run: setup
	$(BIN)/python -u -m spark_it.demo

test: setup
	$(BIN)/python -m compat_tests.jars
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-fast: setup
	$(BIN)/python -m pytest -n 2 wire log controller broker ottla/world ottla/peers ottla/tools sim tests

lint: setup
	$(BIN)/python -m pytest tests

sim: setup
	PYTHONHASHSEED=0 $(BIN)/python -m sim --seed $(SEED)

soak: setup
	PYTHONHASHSEED=0 $(BIN)/python -m sim --seeds 2000
	PYTHONHASHSEED=0 $(BIN)/python -m sim --seeds 200 --synced
	PYTHONHASHSEED=0 $(BIN)/python -m sim --cluster --seeds 300 --seconds 60
	PYTHONHASHSEED=0 $(BIN)/python -m sim --cluster --transactions 2 --seeds 500
	PYTHONHASHSEED=0 $(BIN)/python -m sim --cluster --transactions 2 --late --seeds 100
	PYTHONHASHSEED=0 $(BIN)/python -m sim --quorum --seeds 5000
	OTTLA_PLANTS=1 $(BIN)/python -m pytest sim/tests/test_sim.py sim/tests/test_cluster.py -k planted
	OTTLA_HISTORIES=10000 $(BIN)/python -m pytest log/tests/test_compaction.py
	OTTLA_MUTATIONS=10000 $(BIN)/python -m pytest log/tests/test_mutations.py
	OTTLA_FAULTS=1 $(BIN)/python -m pytest sim/tests/test_fault_sweep.py
	OTTLA_POWER_CUTS=200 $(BIN)/python -m pytest compat_tests/test_power.py
	OTTLA_CYCLES=1000 $(BIN)/python -m pytest compat_tests/test_embedded.py
	OTTLA_KILLS=40 OTTLA_STOPS=12 OTTLA_PAUSES=10 $(BIN)/python -m pytest -s compat_tests/test_leader_kills.py
	OTTLA_CUTS=3 $(BIN)/python -m pytest -s compat_tests/test_network_cuts.py

mutate: setup
	$(BIN)/python -m tests.mutate $(ROOM)

bench: setup
	$(BIN)/python -m bench.start
	$(BIN)/python -m bench.produce
	$(BIN)/python -m bench.groups
	$(BIN)/python -m bench.partitions
	$(BIN)/python -m bench.lookups
	$(BIN)/python -m bench.fetch

clean:
	rm -rf .venv* .cache ottla-data build dist *.egg-info
