# make report   set up, judge the embedded recordings, add a short live check: report/report.html
# make test     set up and run all tests
# make test-serving   the tests with a real vLLM, in an environment of its own (.venv-serving)
# make lab      JupyterLab on the notebooks
#
# PYTHON=python3.12   another Python          TORCH='torch==2.13.0'   another torch, or none
# LIVE=1              measure on this machine instead of judging recordings
# INVESTIGATION=name  one investigation only (default: capture-stream, and vime-decode in OUT-vime-decode)
# OUT=dir ARGS='...'  report folder and further options of 'rcatools report'

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.ready
RUFF   = $(if $(wildcard $(BIN)/ruff),$(BIN)/ruff,ruff)
INVESTIGATION ?=
OUT   ?= report
ARGS  ?=
TESTS ?=

.PHONY: setup report test test-serving lab lint bench clean distclean help
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt tools/setup.sh
	@bash tools/setup.sh
	@touch $@

report: $(STAMP)
ifeq ($(INVESTIGATION),)
	@$(BIN)/rcatools report capture-stream --out $(OUT) $(if $(LIVE),--live) $(ARGS)
	@$(BIN)/rcatools report vime-decode --out $(OUT)-vime-decode $(if $(LIVE),--live,--no-live-check)
else
	@$(BIN)/rcatools report $(INVESTIGATION) --out $(OUT) $(if $(LIVE),--live) $(ARGS)
endif

test: $(STAMP)
	@$(BIN)/python -m pytest -m "not serving" $(TESTS)

test-serving: $(STAMP)
	@bash tools/serving_env.sh
	@$(BIN)/python -m pytest -m serving $(TESTS)

lab: $(STAMP)
	@$(BIN)/python -m jupyterlab notebooks

lint: $(STAMP)
	@$(RUFF) check .
	@$(RUFF) format --check .
	@$(BIN)/python -m mypy

bench: $(STAMP)
	@$(BIN)/python -m benchmarks

clean:
	@rm -rf report report-* build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	@rm -rf $(VENV)
