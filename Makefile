# `make run` and `make test` also work on a new machine: they first create .venv and install coterie into it.
# They need Python 3.11 or newer; choose a version with `make PYTHON=python3.12 ...`.

PYTHON ?= python3
SCENARIO ?= scenarios/quickstart.toml
WORKERS ?= 2

BIN := .venv/bin
INSTALLED := .venv/.installed
BENCH_INSTALLED := .venv/.installed-bench
DOCS_INSTALLED := .venv/.installed-docs
GALLERY := build/gallery/runs.html
PEERS_INSTALLED := .venv-peers/.installed

# Tests of real data use this folder next to the repository if it exists, and are skipped otherwise.
COTERIE_DATA ?= $(abspath $(wildcard ../shared/data))
ifneq ($(COTERIE_DATA),)
export COTERIE_DATA
endif

.PHONY: run test weather test-deep test-portable test-newest test-long test-slow check fuzz peers bench reference papers changelog docs size gpu wheel clean

run: $(INSTALLED)
	$(BIN)/coterie run $(SCENARIO) $(ARGS)

# Use one thread per worker: by default, torch starts one thread per core in every worker.
test test-deep test-long test-slow: export OMP_NUM_THREADS ?= 1

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# The hypothesis tests with new examples, ten times as many. SEED=... draws the examples of an earlier run.
SEED := $(if $(SEED),$(SEED),$(shell date +%s))

test-deep: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) -m hypothesis --hypothesis-profile=deep --hypothesis-seed=$(SEED) $(ARGS)

# The tests with the arithmetic of other processors: an old one with one thread, then AVX2 with two threads.
# Together they cover each setting and number of threads. The second uses one worker, so each thread has a core.
test-portable: $(INSTALLED)
	OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 \
		$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" $(ARGS)
	OMP_NUM_THREADS=2 ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 \
		$(BIN)/python -m pytest -n 1 -m "not slow" $(ARGS)

# The tests with the newest releases that pyproject.toml allows, in a separate, new environment. Before the tests, the
# quickstart must give the same trace as with the pinned releases. ARGS as for `make test`.
test-newest: export OMP_NUM_THREADS ?= 1
test-newest: $(INSTALLED)
	rm -rf .venv-newest
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable '.[dev]'
	.venv-newest/bin/python -c 'import torch; print("torch", torch.__version__)'
	for at in .venv .venv-newest; do \
		$$at/bin/coterie run scenarios/quickstart.toml --quiet --device cpu --out $$at/newest --overwrite >/dev/null && \
		$$at/bin/python -c 'import glob, json, sys; print(json.load(open(glob.glob(sys.argv[1])[0]))["trace_hash"])' \
			"$$at/newest/*/summary.json" >$$at/newest.hash || exit 1; done
	cmp .venv/newest.hash .venv-newest/newest.hash
	.venv-newest/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

# The tests that take more than half a second each. Continuous integration runs them after `make test`.
test-long: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "long and not slow" $(ARGS)

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) -m slow $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@git log --format=%s origin/main.. 2>/dev/null | awk 'length > 72 {print "commit subject longer than 72 characters: " $$0; bad = 1} END {exit bad}'
	$(BIN)/python -m docs.build.prose
	$(BIN)/codespell README.md CHANGELOG.md changes docs/*.md docs/*/*.md docs/examples docs/build actors coterie protocols sim benchmarks scenarios
	$(BIN)/proselint check --config docs/build/proselint.json README.md CHANGELOG.md changes docs/*.md docs/how-to docs/fidelity
	$(BIN)/python -m docs.build.api | diff docs/api.md - || (echo "docs/api.md is out of date: run make reference" >&2; exit 1)

# ARGS: --minutes, --cases, --seed, --kinds, --jobs; --case repeats one case, given as it was printed.
fuzz: export OMP_NUM_THREADS ?= 1

fuzz: $(INSTALLED)
	$(BIN)/python -m tests.fuzz $(ARGS)

# Comparison with other simulators, in a separate environment: they exclude releases that constraints.txt pins.
peers: export OMP_NUM_THREADS ?= 1
peers: $(PEERS_INSTALLED)
	.venv-peers/bin/python -m pytest -n 0 tests/peers -rs $(ARGS)

bench: $(BENCH_INSTALLED)
	$(BIN)/python -m benchmarks $(ARGS)

# The tests of engine, methods and fidelity on a CUDA device, then docs/gpu.md; without a device, a notice.
CUDA := $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'

gpu: export OMP_NUM_THREADS ?= 1
gpu: $(INSTALLED)
	if $(CUDA); then COTERIE_DEVICE=cuda $(BIN)/python -m pytest -n $(WORKERS) tests/learning tests/protocols; fi
	$(BIN)/python -m benchmarks.gpu $(ARGS)

# Lines of each package, and the difference from a revision: ARGS=v0.1, by default origin/main.
size: $(INSTALLED)
	$(BIN)/python -m benchmarks.size $(ARGS)

# Pages are written atomically.
reference: $(INSTALLED)
	$(BIN)/python -m docs.build.scenarios docs/scenarios
	$(BIN)/python -m docs.build.notebooks
	$(BIN)/python -m docs.build.api > docs/api.md.new
	mv docs/api.md.new docs/api.md

# docs/papers.md, from docs/papers.toml and the results in RUNS of the studies in scenarios/studies/papers.
RUNS ?= runs

papers: $(INSTALLED)
	$(BIN)/python -m docs.build.papers $(RUNS)

# The runs of a method in bad weather: METHOD is its case in scenarios/studies/$(STUDY).toml, 60 runs of 20 s.
STUDY ?= weather

weather: $(INSTALLED)
	@test -n "$(METHOD)" || (echo 'state the case: make weather METHOD=gossip' >&2; exit 2)
	$(BIN)/coterie sweep scenarios/studies/$(STUDY).toml --full --only "method=$(METHOD)" --out build/weather
	$(BIN)/python -m benchmarks.weather build/weather/$(STUDY)-sweep-* --write

# The section of the next release from the files in changes/; VERSION=... moves it to CHANGELOG.md.
changelog: $(INSTALLED)
	$(BIN)/python -m docs.build.changes $(VERSION)

# The documentation as a site, site/index.html, which needs no network. Warnings, such as broken links, are errors.
docs: $(DOCS_INSTALLED) $(GALLERY)
	rm -rf build/site
	$(BIN)/python -m docs.build.site build/docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -c docs -d build/doctrees \
		-D html_extra_path=../build/gallery/files build/docs build/site
	rm -rf site
	mv build/site site

# Runs of two minutes in total, made once; run `make clean` to repeat them.
$(GALLERY): | $(DOCS_INSTALLED)
	$(BIN)/python -m docs.build.gallery build/gallery

# The source archive and the wheel built from it, tested outside of the checkout, in an environment with the
# dependencies of coterie but without its sources.
WHEEL := .venv-wheel
TRIED := import coterie; run = coterie.run("gossip", out="tried", quiet=True); assert run.metrics.height and run.report.is_file()

wheel: export OMP_NUM_THREADS ?= 1
wheel: $(INSTALLED)
	rm -rf build dist $(WHEEL)
	$(BIN)/python -m build --outdir dist >/dev/null
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip install --quiet --no-deps dist/*.whl
	$(BIN)/python -c 'import sys; print(*[each for each in sys.path if each.endswith("-packages")], sep="\n")' >$(WHEEL)/dependencies.txt
	cp $(WHEEL)/dependencies.txt $$(echo $(WHEEL)/lib/python*/site-packages)/dependencies.pth
	cd $(WHEEL) && bin/coterie list scenarios | grep -c quickstart && bin/coterie run quickstart --quiet && bin/python -c '$(TRIED)'
	ls -l dist

# Keeps the environments, which take minutes to create, and the results in runs/.
clean:
	rm -rf build site dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find actors protocols sim coterie tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "coterie needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -q actors coterie protocols sim
	touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

$(PEERS_INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	grep '^torch==' constraints.txt >.venv-peers/torch.txt
	.venv-peers/bin/python -m pip install --quiet --constraint .venv-peers/torch.txt --editable '.[dev,peers]'
	touch $@
