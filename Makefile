# The book's commands. `make help` lists them.

PYTHON ?= python3
# Give an empty one to try the newest versions: make test CONSTRAINTS=
CONSTRAINTS ?= constraints.txt

BIN := .venv/bin
INSTALLED := .venv/installed
BUILT := _build/complete
SOURCES := $(wildcard chapters/*.ipynb chapters/*.md images/*) \
	$(shell find site -type f -not -path '*/__pycache__/*') \
	_config.yml _toc.yml references.bib CHANGELOG.md \
	chapters/attnbook/town.py chapters/attnbook/data/town.safetensors \
	tools/build.py tools/notebooks.py

# Outputs must not depend on what the network gives, and progress bars are
# for people.
export ATTNBOOK_OFFLINE := 1
export ATTNBOOK_QUIET := 1

# Matplotlib lists the fonts that it finds once, for all later runs. The list
# in a home may be older than this environment, and lack the fonts in it; then
# a figure prints warnings. Settings there would change figures, too.
export MPLCONFIGDIR := $(CURDIR)/.venv/matplotlib

# Hundreds of processes import torch: what one has compiled the next reads.
unexport PYTHONDONTWRITEBYTECODE

RUFF := $(BIN)/ruff
PYTEST := env CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 $(BIN)/python -m pytest
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 900 \
	-p no:cacheprovider -q
# The outputs must be those of the machine that stored them (it has AVX-512) on
# another one too: with older instructions, and one thread. The oldest ones are
# asked of pages 1 to 9. The later pages train, or have models of a hundred million
# weights, which take three times as long with them, so those are run as on a
# processor that has AVX2. With OLDEST=1 all are run with the oldest.
OLDEST_CPU := env ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE \
	ONEDNN_MAX_CPU_ISA=SSE41
AVX2_CPU := env ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 ONEDNN_MAX_CPU_ISA=AVX2

# The parts of `make test`. JOBS of them run at a time, and whoever has done with
# one takes the next. They stand in an order in which two cores end at about the
# same time, as long as the parts are now. What no other part names is in `rest`.
JOBS ?= 2
PARTS := pages teach library rest late-outputs folds early-outputs
EARLY := $(wildcard chapters/0*.ipynb)
# They share what came of each page, so one process runs both.
PAGES := tests/chapters/test_whole_pages.py \
	tests/chapters/test_mistakes_on_pages.py
FOLDS := tests/chapters/test_without_folds.py
TEACH := tests/attnbook/teach
OTHERS := tests/attnbook $(PAGES) $(FOLDS) tests/browser
# Each part's lines together, where make can do that.
TOGETHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

# What `make check CHAPTER=04` looks at: a chapter by its two digits, or any
# notebook by its name.
NOTEBOOKS := $(wildcard chapters/*.ipynb)
NUMBERED := $(wildcard chapters/[0-9][0-9]_*.ipynb)
NOTEBOOK = $(filter chapters/$(CHAPTER)_%.ipynb,$(NUMBERED)) \
	$(filter chapters/$(CHAPTER).ipynb,$(NOTEBOOKS))
NUMBER = $(firstword $(subst _, ,$(CHAPTER)))
CATALOGUE = $(wildcard chapters/attnbook/teach/catalogue/c$(NUMBER)_*.py)

# Two commands side by side, the output of the first at the end.
define beside
@mkdir -p _build; ($(1)) > _build/beside.txt 2>&1 & first=$$!; \
trap 'trap "" TERM; kill 0' INT TERM; $(2); second=$$?; wait $$first; \
first=$$?; cat _build/beside.txt; exit $$((first || second))
endef

.PHONY: help install book lab pdf epub slides cards check known quick test \
	test-site scores outputs mutants model real-model bench gpu repository clean \
	$(PARTS:%=test-%)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' \
		$(MAKEFILE_LIST)

install: $(INSTALLED) ## create .venv and install what the book needs

# The stamp is written last: an interrupted installation is taken up again.
$(INSTALLED): requirements.txt $(CONSTRAINTS) models.txt
	$(PYTHON) tools/install.py $(CONSTRAINTS)
	@$(BIN)/python -c "import matplotlib.font_manager"  # lists the fonts
	@touch $@

book: $(BUILT) ## build the HTML and say where it is
	@echo "The book is at $(CURDIR)/_build/html/index.html"

$(BUILT): $(INSTALLED) $(SOURCES)
	$(BIN)/python tools/build.py
	@touch $@

lab: $(INSTALLED) ## open JupyterLab (OPTIONS="--no-browser --port=8899")
	$(BIN)/python tools/lab.py $(OPTIONS)

pdf: book ## print the book as one PDF, by a Chromium
	$(BIN)/python tools/build.py pdf

epub: book ## write the book as one EPUB
	$(BIN)/python tools/build.py epub

slides: known book ## make slides, by a Chromium (CHAPTER=04 for one deck)
	$(BIN)/python tools/build.py slides $(CHAPTER)

ifdef CHAPTER
cards:
	@echo "the cards of all chapters are in one file; expected no CHAPTER," \
		"got $(CHAPTER); there a chapter's cards have its tag, as chapter-04" >&2
	@false
else
cards: book ## say where the question cards are, for Anki and its like
	@echo "The cards are at $(CURDIR)/_build/html/run/cards.txt"
endif

# Refuses a chapter that there is not, before anything else is done.
known:
	@test -z "$(CHAPTER)" || test -n "$(strip $(NOTEBOOK))" || \
		{ echo "there is no chapter $(CHAPTER); expected two digits such" \
		"as 04, or one of $(basename $(notdir $(NOTEBOOKS)))" >&2; false; }

ifdef CHAPTER
check: known $(INSTALLED) ## look all over in minutes, or one chapter (CHAPTER=04)
	$(RUFF) format --check $(NOTEBOOK) $(CATALOGUE)
	$(RUFF) check $(NOTEBOOK) $(CATALOGUE)
	$(call beside,$(BIN)/python -m pytest $(NBVAL) $(NOTEBOOK),\
		$(PYTEST) -q -k "$(basename $(notdir $(NOTEBOOK))) or $(NUMBER)-" \
		tests/chapters tests/attnbook/teach/catalogue/test_catalogue.py)
	$(if $(CATALOGUE),OMP_NUM_THREADS=1 $(BIN)/python tools/mutants.py \
		--sample 4 --seed $(or $(SEED),1) $(NUMBER))
else
check: quick
	$(call beside,$(PYTEST) -q -m "not slow" tests/attnbook --ignore=tests/attnbook/teach,\
		$(PYTEST) -q -m "not slow" tests/test_rooms.py tests/test_house.py tests/attnbook/teach \
		tests/tools tests/benchmarks tests/chapters/test_notebooks.py; \
		tests=$$?; $(PYTEST) -q --doctest-modules \
		$$(grep -rl --include='*.py' '>>>' chapters tools site) && \
		(exit $$tests))
endif

quick: $(INSTALLED)
	$(RUFF) format --check .
	$(RUFF) check .
	$(BIN)/python -m mypy

test: book ## check everything, but for the browser (JOBS=2)
	+@$(MAKE) --no-print-directory --keep-going --jobs=$(JOBS) $(TOGETHER) \
		$(PARTS:%=test-%)

test-early-outputs:
	$(OLDEST_CPU) $(PYTEST) $(NBVAL) $(or $(EARLY),chapters)

test-late-outputs:
	$(if $(OLDEST),$(OLDEST_CPU),$(AVX2_CPU)) $(PYTEST) $(NBVAL) \
		$(EARLY:%=--ignore=%) chapters

test-pages:
	$(PYTEST) $(PAGES)

test-folds:
	$(PYTEST) $(FOLDS)

test-teach:
	$(PYTEST) $(TEACH)

test-library:
	$(PYTEST) --ignore=$(TEACH) tests/attnbook

test-rest:
	$(PYTEST) $(OTHERS:%=--ignore=%) tests

test-site: book ## read the built book in a real browser
	$(call beside,$(BIN)/python -m pytest tests/browser/test_pages.py,\
		$(BIN)/python -m pytest --ignore=tests/browser/test_pages.py tests/browser)

mutants: $(INSTALLED) ## ask all checks about wrong programs (WHAT=04, WHAT=masks)
	OMP_NUM_THREADS=1 $(BIN)/python tools/mutants.py --store \
		$(if $(SAMPLE),--sample $(SAMPLE)) $(WHAT)

scores: book ## measure the pages by Lighthouse (PAGE=04 RUNS=3)
	$(BIN)/python tools/scores.py $(if $(RUNS),--runs $(RUNS)) $(PAGE)

outputs: $(INSTALLED) ## run chapters and store their outputs (CHAPTER=04)
	$(BIN)/python tools/outputs.py $(CHAPTER)

model: $(INSTALLED) ## train the book's language model again
	env -u ATTNBOOK_QUIET OMP_NUM_THREADS=1 PYTHONPATH=chapters:site \
		$(BIN)/python tools/town_model.py chapters/attnbook/data/town.safetensors

real-model: $(INSTALLED) ## fetch GPT-2, compare it, fill its place in chapter 16
	env -u ATTNBOOK_OFFLINE PYTHONPATH=chapters $(BIN)/python \
		tools/real_model.py
	$(BIN)/python tools/outputs.py 16

bench: $(INSTALLED) ## measure the speed beside other libraries (ROUNDS=5)
	$(BIN)/python benchmarks/speed.py $(if $(ROUNDS),--rounds $(ROUNDS))
	$(BIN)/python tools/outputs.py how_fast

gpu: $(INSTALLED) ## run all on the graphics card, for _build/gpu.md
	$(BIN)/python benchmarks/gpu.py $(CHAPTER)

repository: $(INSTALLED) ## stamp the repository's address (URL=... REF=v...)
	$(BIN)/python tools/repository.py "$(URL)" "$(REF)"

clean: ## remove the built book and the environment
	rm -rf _build .venv
