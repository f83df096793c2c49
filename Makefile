# Everything is installed into .venv and .cache of this folder; nothing outside it is touched.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV_VERSION := 0.13.8
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
JARS := .cache/jars/.fetched
FLUSS_JARS := .cache/fluss/.fetched
FLINK_JARS := .cache/flink/.fetched
FLUSS ?= 0.9.1
CATALOG_JAR := engine/fluss_tiering/spark/jars/fluss-tiering-spark.jar

export PATH := $(CURDIR)/$(BIN):$(PATH)
# Every worker of Spark and every task of Airflow is a new process: compiled modules halve its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup fluss-jars run run-fluss up up-fluss down test check test-only test-fast test-long verify test-matrix test-install test-ways test-platforms test-deploy airflow-versions fluss-versions delete-readers airflow-endings mutate simulate torture bench bench-gate bench-flink lint format types imports house protos protos-check protos-baseline docs page-screenshots docs-site constraints requirements audit sbom dist release-check clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# The jars of a Fluss cluster are for tests: who only wants to run the project needs no Maven.
setup: $(INSTALLED) $(JARS) $(CATALOG_JAR) $(if $(shell command -v mvn),$(FLUSS_JARS)) ## Install everything (the other commands do it by themselves)

define install_uv
	@$(PYTHON) tools/check_prerequisites.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
endef

# Without the engine's build hook, which would download pyspark a second time: the rule of $(CATALOG_JAR) compiles the jar.
$(INSTALLED): pyproject.toml engine/pyproject.toml constraints.txt tools/check_prerequisites.py
	@echo 'Installing (this takes some minutes) ...'
	$(install_uv)
	@HATCH_BUILD_NO_HOOKS=true $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraints constraints.txt --editable . --editable './engine[spark,server,postgres]' --group dev
	@touch $@

$(JARS): tools/fetch_spark_jars.py engine/fluss_tiering/spark/submit.py | $(INSTALLED)
	@mkdir -p $(@D)
	@$(BIN)/python tools/fetch_spark_jars.py >$(@D)/fetch.log 2>&1 || { cat $(@D)/fetch.log; exit 1; }
	@touch $@

$(CATALOG_JAR): engine/catalog_jar.py $(shell find engine/java -type f) $(INSTALLED) $(JARS)
	@$(BIN)/python engine/catalog_jar.py

$(FLUSS_JARS): tools/fetch_fluss_jars.py | $(INSTALLED)
	@mkdir -p $(@D)
	@$(BIN)/python tools/fetch_fluss_jars.py >$(@D)/fetch.log 2>&1 || { cat $(@D)/fetch.log; exit 1; }
	@touch $@

$(FLINK_JARS): tools/fetch_flink_jars.py tools/fetch_fluss_jars.py | $(INSTALLED)
	@mkdir -p $(@D)
	@$(BIN)/python tools/fetch_flink_jars.py >$(@D)/fetch.log 2>&1 || { cat $(@D)/fetch.log; exit 1; }
	@touch $@

run: setup ## The main job: flights data, a real Airflow, two rounds, every row compared
	@$(BIN)/python -m examples.flights run $(ARGS)

up: setup ## Start the tiering server and Airflow, load the data, leave them running
	@$(BIN)/python -m examples.flights up $(ARGS)

run-fluss: setup fluss-jars ## The main job against a real Fluss cluster, started for it (FLUSS=1.0 for that version)
	@$(BIN)/python -m examples.flights run --fluss $(FLUSS) $(ARGS)

up-fluss: setup fluss-jars ## Start a Fluss cluster, its tiering server and Airflow, and leave them running
	@$(BIN)/python -m examples.flights up --fluss $(FLUSS) $(ARGS)

fluss-jars: $(INSTALLED) # For the version of FLUSS; of 1.0, a folder that FLUSS_JARS_1_0 names has some
	@mkdir -p .cache/fluss
	@$(BIN)/python tools/fetch_fluss_jars.py $(FLUSS) >.cache/fluss/fetch.log 2>&1 || { cat .cache/fluss/fetch.log; exit 1; }

down: setup ## End what `make up` or `make up-fluss` started
	@$(BIN)/python -m examples.flights down $(ARGS)

# Many tests wait for other programs, so one process more than there are cores uses them better.
PROCESSES ?= $(shell expr $$(nproc) + 1)

test: check test-only ## All checks and tests but the long ones (ARGS=--renew-durations after large changes)

check: lint types imports protos-check docs-site ## All checks that run no tests

test-only: setup $(FLUSS_JARS) ## All tests but the long ones (ARGS=tests/server for some)
	@$(BIN)/pytest -m "not long" --numprocesses $(PROCESSES) --durations 20 --durations-min 5 $(ARGS)

# Airflow alone takes seconds to import: its tests are not even collected. Files are kept in memory where there is room.
FAST_TESTS := not (spark or cluster or airflow or postgres or server or system or slow or long)

test-fast: $(INSTALLED) $(CATALOG_JAR) ## The tests that need no JVM, Airflow, PostgreSQL or other programs: about a minute
	@$(if $(wildcard /dev/shm),TMPDIR=/dev/shm) $(BIN)/pytest -m "$(FAST_TESTS)" --ignore tests/provider --ignore tests/system --numprocesses $(PROCESSES) $(ARGS)

test-long: setup $(FLUSS_JARS) $(FLINK_JARS) ## The tests that take minutes each
	@$(BIN)/pytest -m long $(ARGS)

verify: setup $(FLUSS_JARS) ## The tests of the verification programs, and short runs of them (ARGS="-m long" for their long runs)
	@$(BIN)/pytest verification -m "not long" --numprocesses auto $(ARGS)

fluss-versions: setup $(FLUSS_JARS) $(FLINK_JARS) ## The tests of clusters, and what they show in docs/reference/fluss-versions.md
	-@$(BIN)/pytest tests verification/fluss_readers -m cluster --numprocesses 2 --junitxml=.cache/fluss-versions.xml $(ARGS)
	@$(BIN)/python tools/fluss_versions.py .cache/fluss-versions.xml

delete-readers: setup $(FLUSS_JARS) ## Which engine reads which deletes, and what was seen in docs/reference/delete-readers.md
	-@$(BIN)/pytest verification/delete_readers/test_delete_readers.py --junitxml=.cache/delete-readers.xml $(ARGS)
	@PYTHONPATH=tools $(BIN)/python verification/delete_readers/delete_readers_page.py .cache/delete-readers.xml

airflow-endings: setup ## Each way in which a run of the main DAG can end, and what was seen in docs/reference/ways-to-end.md
	-@$(BIN)/pytest -m long verification/endings $(ARGS)
	@PYTHONPATH=tools $(BIN)/python verification/endings/endings_page.py

mutate: setup ## Break a package in small ways and say which breaks no test notices (PACKAGE=server/core/leases)
	@$(BIN)/python tools/mutate.py $(PACKAGE) $(ARGS)

simulate: setup ## Tiering with crashes, lost and late messages on a virtual clock (ARGS="--rounds 10000 --seed 1")
	@PYTHONPATH=verification $(BIN)/python -m simulation $(ARGS)

torture: setup ## Tables, histories and faults from seeds, judged by other readers (ARGS="--minutes 60 --seed 1")
	@PYTHONPATH=verification:tests:tools $(BIN)/python -m torture $(ARGS)

test-matrix: setup ## A real round on each Spark, Iceberg, Java and Python that is here; writes docs/reference/compatibility.md
	@PYTHONPATH=verification:tools $(BIN)/python -m matrix $(ARGS)

test-install: $(INSTALLED) ## Both packages resolve under Airflow's constraints and beside dbt, Beam and other providers (needs the network)
	@$(BIN)/python -m verification.installs

test-ways: setup ## A round by what the real operator of each way to submit sends, run by spark-submit (needs the network)
	@PYTHONPATH=tools $(BIN)/python -m verification.ways

test-platforms: setup ## The whole job on each lake catalog, store and cluster of Spark; writes docs/reference/platforms.md (ARGS="--only nessie"; needs the network)
	@PYTHONPATH=verification:tests:tools:. $(BIN)/python -m platforms $(ARGS)

# Go builds helm, which takes some minutes the first time.
DEPLOY := $(CURDIR)/.cache/deploy
test-deploy: setup ## The Helm chart against Kubernetes' schemas, and Spark's pods as processes (needs Go and the network)
	@test -x $(DEPLOY)/bin/helm || GOBIN=$(DEPLOY)/bin go install helm.sh/helm/v3/cmd/helm@v3.19.0
	@test -d $(DEPLOY)/python || $(BIN)/uv pip install --quiet --target $(DEPLOY)/python kubernetes-validate==1.37.0
	@PATH="$(DEPLOY)/bin:$(PATH)" PYTHONPATH=$(DEPLOY)/python $(BIN)/pytest tests/packaging/test_chart.py verification/spark_on_kubernetes $(ARGS)

# Not the tests of what only newer versions can do: bloom filters, a source of Spark, words of Typer.
LOWEST := $(VENV)/lowest
test-lowest: $(INSTALLED) $(CATALOG_JAR) ## The tests of the server and of formats, and two rounds, with the oldest versions that fit (needs the network)
	@$(BIN)/uv venv --quiet --clear $(LOWEST)
	@HATCH_BUILD_NO_HOOKS=true $(BIN)/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct --editable './engine[demo,postgres]' --group test
	@$(LOWEST)/bin/python -m pytest -m "$(FAST_TESTS)" --numprocesses auto tests/model tests/formats tests/wire tests/client tests/server tests/storage --quiet $(ARGS)
	@$(LOWEST)/bin/fluss-tiering demo

airflow-versions: setup ## The provider on each version of Airflow; writes docs/reference/airflow-versions.md (ARGS="--airflow 3.1")
	@PYTHONPATH=tools $(BIN)/python verification/airflow_versions.py $(ARGS)

bench: setup ## Speed and memory, as ratios measured in one run
	@$(BIN)/python -m benchmarks $(ARGS)

bench-gate: setup ## Fail if rounds or the control plane lost 15 % of their speed (three minutes on a quiet machine; ARGS=--record)
	@$(BIN)/python -m benchmarks.gate $(ARGS)

bench-flink: setup $(FLINK_JARS) ## The same work by Fluss's Flink tiering service and by us, compared (ARGS="--rows 400000" for less, FLUSS=1.0)
	@PYTHONPATH=tools $(BIN)/python -m benchmarks.flink --fluss $(FLUSS) $(ARGS)

lint: setup ## Style of the code and of the protos
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@cd protos && ../$(BIN)/buf lint
	@cd protos && ../$(BIN)/buf breaking --against baseline.binpb

format: setup ## Rewrite the code in the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@cd protos && ../$(BIN)/buf format -w

types: setup ## mypy --strict on the packages, the tools, the examples and the benchmarks
	@$(BIN)/mypy
	@$(BIN)/mypy tools verification/airflow_versions.py verification/matrix verification/endings/endings_page.py verification/delete_readers/delete_readers_page.py

imports: setup ## Directions of imports
	@$(BIN)/lint-imports

house: $(INSTALLED) ## Count files, rooms and imports of each package; circles and too large folders are errors (ARGS="--plan fluss_tiering.server")
	@$(BIN)/python tools/house.py $(ARGS)

docs: setup ## Fill in what the documentation takes from the code
	@$(BIN)/python tools/docs.py

page-screenshots: setup ## Take the pictures of the page in Airflow that the documentation shows (needs Chromium)
	@PYTHONPATH=.:tests:tests/provider/page $(BIN)/python tools/page_screenshots.py $(ARGS)

docs-site: setup ## Build the documentation site into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'The site is in site/. To read it with its search: python3 -m http.server -d site, then http://127.0.0.1:8000'

protos: setup ## Generate the gRPC stubs anew
	@$(BIN)/python tools/generate_protos.py

protos-check: setup
	@$(BIN)/python tools/generate_protos.py --check

protos-baseline: setup ## Make today's API the one that later changes must not break (at a release)
	@cd protos && ../$(BIN)/buf build --exclude-source-info --output baseline.binpb

# What the two packages need, without themselves: they are built from this folder.
PIN := HATCH_BUILD_NO_HOOKS=true $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header \
	--no-emit-package fluss-tiering --no-emit-package airflow-provider-fluss

constraints: $(INSTALLED) ## Pin the newest versions that fit
	@$(PIN) --upgrade --no-annotate --all-extras --group dev pyproject.toml engine/pyproject.toml --output-file constraints.txt
	@$(MAKE) --no-print-directory requirements

# An existing file says which versions are preferred.
requirements: $(INSTALLED) ## Pin what releases install, with hashes, in the versions of constraints.txt
	@cp constraints.txt requirements/server.txt
	@$(PIN) --generate-hashes --annotation-style line --extra server --extra postgres engine/pyproject.toml --output-file requirements/server.txt
	@cp constraints.txt requirements/spark.txt
	@$(PIN) --generate-hashes --annotation-style line --extra spark --no-emit-package pyspark --no-emit-package py4j engine/pyproject.toml --output-file requirements/spark.txt
	@cp constraints.txt requirements/all.txt
	@$(PIN) --generate-hashes --annotation-style line --all-extras pyproject.toml engine/pyproject.toml --output-file requirements/all.txt

audit: $(INSTALLED) ## Look for known vulnerabilities of what constraints.txt pins (needs the network)
	@$(BIN)/python tools/audit.py $(ARGS)

sbom: $(INSTALLED) ## Write the list of what users install (SBOM) into dist/
	@$(BIN)/python tools/sbom.py

dist: ## Build the wheels and the source archives of both packages into dist/
	@echo '1 of 3: getting the build tool uv into $(VENV)/ (seconds) ...'
	$(install_uv)
	@rm -f dist/*.whl dist/*.tar.gz
	@echo '2 of 3: building airflow-provider-fluss (seconds) ...'
	@$(BIN)/uv build --python $(BIN)/python --package airflow-provider-fluss --out-dir dist
	@echo '3 of 3: building fluss-tiering (seconds; three minutes before "make setup", to download a pyspark and compile a jar with it) ...'
	@$(BIN)/uv build --python $(BIN)/python --package fluss-tiering --out-dir dist
	@echo 'Built:' dist/*
	@echo "Next: pip install --find-links dist airflow-provider-fluss 'fluss-tiering[server]'"

release-check: $(INSTALLED) $(CATALOG_JAR) dist sbom ## Build what a release has, and check it (ARGS="--tag v0.1.0"; needs the network)
	@$(BIN)/python tools/release_check.py $(ARGS)

clean: ## Remove what was installed and made
	rm -rf $(VENV) $(dir $(CATALOG_JAR)) dist .cache .run site .mypy_cache .ruff_cache .pytest_cache .hypothesis
