# make quickstart    a model and a report from scratch, in minutes
# make test          the tests, in minutes; make test-all: with those that take longer
# make results       the papers' experiments at the scale mini, into papers/results; complete ones are kept
# make benchmark     every speed that this machine and its peers allow, into benchmarks/results and the pages
# make check         format, lint, types, the code and the pictures in the pages, the site
# make docs          the pages as a site: build/site/index.html
# Each target sets up what it needs in .venv, once.

PYTHON ?= python3
BIN := .venv/bin
NATIVE := setup.py $(wildcard src/headwater/native/*.[ch])  # compiled by pip: a change installs again
DATA := $(abspath $(wildcard ../shared/data))
export HEADWATER_DATA ?= $(DATA)

.PHONY: quickstart test benchmark benchmark-peers test-gpu sanitize test-all results check format docs clean

quickstart: .venv/.ready-quickstart
	$(BIN)/headwater quickstart $(ARGS)

# Two processes with one thread each, because the tests are many and small.
test: .venv/.ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" $(ARGS)

# The kernels under AddressSanitizer and UBSan, with threads, and those for Arm under qemu if it is installed.
sanitize: .venv/.ready-dev
	$(BIN)/python -m pytest tests/native/test_check_program.py $(ARGS)

test-all: .venv/.ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(ARGS)

# Tests and figures on a machine with a GPU, with the torch of GPU_PYTHON. Resumes where it stopped. NANOGPT names a
# checkout of that peer.
test-gpu:
	$(or $(GPU_PYTHON),$(PYTHON)) tests/gpu/run.py $(ARGS)

# Resumes where it stopped. On a machine without other work.
benchmark: .venv/.ready-dev
	$(BIN)/python benchmarks/everything.py $(ARGS)

# llama.cpp takes ten minutes. nanoGPT is a checkout of its repository: put it at benchmarks/peers/nanoGPT.
benchmark-peers: .venv/.ready-dev
	$(BIN)/pip download --no-deps --no-binary llama-cpp-python --dest benchmarks/peers llama-cpp-python==0.3.36
	tar -xzf benchmarks/peers/llama_cpp_python-0.3.36.tar.gz -C benchmarks/peers
	$(BIN)/pip install cmake ninja
	$(BIN)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
		-DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
		-DLLAMA_BUILD_WEBUI=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
		-S benchmarks/peers/llama_cpp_python-0.3.36/vendor/llama.cpp -B benchmarks/peers/llama.cpp
	$(BIN)/ninja -C benchmarks/peers/llama.cpp llama-batched-bench llama-quantize llama-server
	$(PYTHON) -m venv benchmarks/peers/venv
	benchmarks/peers/venv/bin/pip install torch==2.13.0 transformers==5.23.0 lm_eval accelerate ctranslate2 onnxruntime onnx .

# The folder of the run is kept, so that an interrupted one resumes; papers/results gets its pages and figures.
results: .venv/.ready-dev
	$(BIN)/headwater reproduce all --scale mini --out reproduction $(ARGS)
	$(BIN)/python papers/tools/publish_results.py reproduction papers/results

check: .venv/.ready-dev
	$(BIN)/ruff format --check src papers tests benchmarks examples tools
	$(BIN)/ruff check src papers tests benchmarks examples tools
	$(BIN)/mypy
	$(BIN)/python tools/examples.py --check
	$(BIN)/python tools/pictures.py --check
	$(BIN)/python benchmarks/everything.py --check
	$(BIN)/python -m pytest tests/documentation/test_pages.py::test_the_site_builds_without_warnings_or_network

format: .venv/.ready-dev
	$(BIN)/ruff format src papers tests benchmarks examples tools
	$(BIN)/ruff check --fix src papers tests benchmarks examples tools
	$(BIN)/python tools/examples.py --write
	$(BIN)/python tools/pictures.py --write
	$(BIN)/python benchmarks/everything.py --write

docs: .venv/.ready-docs
	$(BIN)/python tools/pages.py build/pages
	$(BIN)/python -m sphinx -W --keep-going -q build/pages build/site
	@echo "The site: build/site/index.html"

clean:
	rm -rf .venv build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headwater needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv
	touch $@

.venv/.ready-quickstart: .venv/.created pyproject.toml papers/pyproject.toml constraints.txt $(NATIVE)
	test -f .venv/.ready-dev || $(BIN)/python -m pip install -q -c constraints.txt -e . -e papers
	touch $@

.venv/.ready-docs: .venv/.created pyproject.toml papers/pyproject.toml constraints.txt $(NATIVE)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	touch $@

.venv/.ready-dev: .venv/.created pyproject.toml papers/pyproject.toml constraints.txt $(NATIVE)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]' -e papers
	touch $@
