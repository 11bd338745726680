# The book's commands. `make help` lists them.

PYTHON ?= python3
# Give an empty one to try the newest versions: make test CONSTRAINTS=
CONSTRAINTS ?= constraints.txt

BIN := .venv/bin
INSTALLED := .venv/installed
BUILT := _build/complete
SOURCES := $(wildcard chapters/*.ipynb chapters/*.md images/*) \
	$(shell find site -type f -not -path '*/__pycache__/*') \
	_config.yml _toc.yml references.bib tools/build.py

# Outputs must not depend on what the network gives, and progress bars are
# for people.
export ATTNBOOK_OFFLINE := 1
export ATTNBOOK_QUIET := 1

NBVAL := $(BIN)/python -m pytest --nbval --nbval-current-env \
	--nbval-cell-timeout 900 -p no:cacheprovider
OTHER_CPU := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE \
	ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=

.PHONY: help install book pdf test test-site scores outputs model bench \
	repository clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' \
		$(MAKEFILE_LIST)

install: $(INSTALLED) ## create .venv and install what the book needs

# The stamp is written last: an interrupted installation is taken up again.
$(INSTALLED): requirements.txt $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 10) or sys.exit( \
		f"the book needs Python 3.10 or newer; got {v[0]}.{v[1]}; " \
		"name another with: make PYTHON=python3.11 ...")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || \
		$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-r requirements.txt $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
	@touch $@

book: $(BUILT) ## build the HTML and say where it is
	@echo "The book is at $(CURDIR)/_build/html/index.html"

$(BUILT): $(INSTALLED) $(SOURCES)
	$(BIN)/python tools/build.py
	@touch $@

pdf: book ## print the book as one PDF, by a Chromium
	$(BIN)/python tools/pdf.py

test: book ## prove everything: helpers, notebooks, each alone, the site
	@echo "The notebooks run beside the tests; their report comes last."
	@($(OTHER_CPU) $(NBVAL) -q chapters; other=$$?; \
		$(NBVAL) chapters && exit $$other) > _build/notebooks.txt 2>&1 & \
	notebooks=$$!; trap 'trap "" TERM; kill 0' INT TERM; \
	$(BIN)/python -m pytest --ignore=tests/browser tests; tests=$$?; \
	wait $$notebooks; notebooks=$$?; cat _build/notebooks.txt; \
	exit $$((notebooks || tests))

test-site: book ## read the built book in a real browser
	$(BIN)/python -m pytest tests/browser

scores: book ## measure the pages by Lighthouse (PAGE=04 RUNS=3)
	$(BIN)/python tools/scores.py $(if $(RUNS),--runs $(RUNS)) $(PAGE)

outputs: $(INSTALLED) ## run chapters and store their outputs (CHAPTER=04)
	$(BIN)/python tools/outputs.py $(CHAPTER)

model: $(INSTALLED) ## train the book's language model again
	env -u ATTNBOOK_QUIET OMP_NUM_THREADS=1 PYTHONPATH=chapters $(BIN)/python \
		tools/town_model.py chapters/attnbook/data/town.safetensors

bench: $(INSTALLED) ## measure the speed beside other libraries (ROUNDS=5)
	$(BIN)/python benchmarks/speed.py $(if $(ROUNDS),--rounds $(ROUNDS))
	$(BIN)/python tools/outputs.py how_fast

repository: $(INSTALLED) ## stamp the repository's address (URL=... REF=v...)
	$(BIN)/python tools/repository.py "$(URL)" "$(REF)"

clean: ## remove the built book and the environment
	rm -rf _build .venv
