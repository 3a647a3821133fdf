# Needs Python >= 3.11 and make; everything else is installed into .venv or built into a cache outside the tree.
# All recipes use relative paths, so that a blank in the path of the clone does no harm.

.DEFAULT_GOAL := help
VENV := .venv/bin
LOCAL := PYTHONPATH=deploy/tools/local $(VENV)/python -m localplane
KIND := PYTHONPATH=deploy/tools/local:deploy/tools/kind $(VENV)/python -m kindcluster
PYTEST := $(VENV)/python -m pytest
QUICK := $(wildcard $(addprefix tests/,model fairness scheduling cluster kube web))
UNIT := tests $(addprefix --ignore=tests/,e2e local kind demo perf)
N ?= 50
PLATFORMS ?= linux/amd64 linux/arm64
export KEEP POLICY DURATION CLUSTER

# The first interpreter that really runs and is new enough: a name in PATH may be a shim that only fails.
NO_PYTHON := $(if $(PYTHON),$(PYTHON) is not one,none is in PATH)
define FIND_PYTHON
for python in $(if $(PYTHON),"$(PYTHON)",$(VENV)/python python3.13 python3.12 python3.11 python3 python); do \
  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; \
done; \
test -n "$$python" || { echo "fairbind needs Python 3.11 or newer, and $(NO_PYTHON): install one," \
  "or name one with make PYTHON=/path/to/python3" >&2; exit 2; }
endef

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r target text; do \
	  printf '  make %-18s %s\n' "$$target" "$$text"; done

.PHONY: install
install: ## install the pinned dependencies and fairbind itself into .venv
	@$(FIND_PYTHON); exec "$$python" deploy/tools/bootstrap.py

.PHONY: tools
tools: install ## build the control plane's programs into the cache (about 14 minutes the first time)
	@$(LOCAL) tools

.PHONY: framework-tools
framework-tools: install ## build the operators of others that make groups of pods (JobSet, KubeRay ...) into the cache (about 9 minutes the first time)
	@$(LOCAL) framework-tools

.PHONY: demo
demo: install ## watch fairbind share a cluster for a minute (CLUSTER=kind: real kubelets; MODE=gate: kube-scheduler places the pods; KEEP=1 keeps it; POLICY=name, DURATION=seconds, NODES=number)
	@NODES="$(or $(NODES),60)" exec $(VENV)/python deploy/tools/demo/main.py

.PHONY: test
test: install ## everything that CI runs: format, lint, types, and all tests on the built wheel
	@exec $(VENV)/python deploy/tools/gates.py

.PHONY: quick
quick: install ## what to run after each change: most tests of the packages, with few examples, in under a minute on two cores
	@HYPOTHESIS_PROFILE=quick exec $(PYTEST) -q -n auto -m "not slow and not nightly" $(QUICK)

.PHONY: unit
unit: install ## the tests that need no control plane and no Go program, on the source tree
	@exec $(PYTEST) -n auto -m "not needs_tools and not nightly" $(UNIT)

.PHONY: ranges
ranges: install ## the unit tests on the newest versions that pyproject.toml allows and on the oldest (ONLY=newest or oldest; NEWEST=path, OLDEST=path of a Python)
	@exec $(VENV)/python deploy/tools/ranges.py $(if $(ONLY),--only "$(ONLY)") $(if $(NEWEST),--newest "$(NEWEST)") $(if $(OLDEST),--oldest "$(OLDEST)")

.PHONY: nightly
nightly: install ## what takes minutes: tests that CI leaves out, unit tests with new seeds and many examples, both ends of the ranges, fuzz-cost, gaps, Kubernetes' own specs, e2e on the oldest Kubernetes (SEED=number repeats a night)
	@seed="$${SEED:-$$(date +%s)}"; echo "to try the same once more: make nightly SEED=$$seed"; status=0; \
	export FAIRBIND_TEST_SEED="$$seed"; \
	$(PYTEST) -n 2 -m nightly --timeout=3600 || status=1; \
	HYPOTHESIS_PROFILE=nightly $(PYTEST) -n auto -m "not needs_tools" --timeout=3600 --hypothesis-seed="$$seed" \
	  --randomly-seed="$$seed" $(UNIT) || status=1; \
	$(MAKE) --no-print-directory ranges || status=1; \
	$(MAKE) --no-print-directory fuzz-cost SEED="$$seed" || status=1; \
	$(MAKE) --no-print-directory gaps || status=1; \
	$(VENV)/python tests/exam/exam.py --output build/exam/result.json || status=1; \
	$(MAKE) --no-print-directory e2e KUBERNETES=1.34 || status=1; exit $$status

.PHONY: fuzz-cost
fuzz-cost: install ## look for objects that cost too much time or memory (SECONDS=600 SEED=number; cases go to tests/fuzz/corpus)
	@PYTHONPATH=tests exec $(VENV)/python tests/fuzz/main.py --seconds "$(or $(SECONDS),600)" --seed "$${SEED:-$$(date +%s)}"

.PHONY: differential
differential: install ## hold the filters against kube-scheduler's own (CASES=number SEED=number, LIVE=number: against a living one, OUTPUT=path of the result)
	@exec $(VENV)/python tests/differential/differential.py --cases "$(or $(CASES),20000)" $(if $(SEED),--seed "$(SEED)") \
	  $(if $(LIVE),--live "$(LIVE)") --output "$(or $(OUTPUT),docs/reliability/results/differential$(if $(LIVE),-live).json)"

.PHONY: exam-e2e
exam-e2e: install ## Kubernetes' own end-to-end specs of scheduling, with kube-scheduler and with fairbind (ONLY=regular expression, ALL=1: what is known to fail too, TOGETHER=1: both at the same time, RENEW=1 with ONLY: put them into the recorded result)
	@exec $(VENV)/python tests/exam/exam.py $(if $(ONLY),--only "$(ONLY)") $(if $(ALL),--all) $(if $(TOGETHER),--together) $(if $(RENEW),--renew)

.PHONY: exam-frameworks
exam-frameworks: install ## operators of others that make groups of pods, built from their modules, with fairbind on a local control plane (ONLY=pytest's expression)
	@exec $(VENV)/python tests/frameworks/exam.py $(if $(ONLY),--only "$(ONLY)")

.PHONY: exam-karpenter
exam-karpenter: install ## Karpenter with its kwok provider, built from its module, beside fairbind: what it buys, and for whom (a quarter of an hour; ONLY=pytest's expression)
	@exec $(VENV)/python tests/karpenter/exam.py $(if $(ONLY),--only "$(ONLY)")

.PHONY: exam-volcano
exam-volcano: install ## Volcano's scheduler, built from its module, beside fairbind on one cluster: each starts its own pods (some minutes)
	@FAIRBIND_VOLCANO=yes exec $(PYTEST) -v -p no:xdist tests/volcano

.PHONY: soak
soak: install ## let a million pods and 10,000 tenants come and go, and judge what stays in memory (LIVES=number)
	@PYTHONPATH=tests exec $(VENV)/python tests/soak/soak.py --lives "$(or $(LIVES),1000000)"

.PHONY: e2e
e2e: install ## the tests on a real control plane (FAIRBIND_KUBECONFIG=path: on that cluster; KUBERNETES=1.34: some, on that version)
	@FAIRBIND_KUBERNETES="$(KUBERNETES)" exec $(PYTEST) $(if $(KUBERNETES),-m oldest_kubernetes tests/e2e,tests/e2e tests/local)

.PHONY: e2e-kind
e2e-kind: install ## the tests on a kind cluster with real kubelets; needs a Docker engine
	$(VENV)/python -m pytest -rs tests/kind

.PHONY: lint
lint: install ## format, lint and types, without tests
	@exec $(VENV)/python deploy/tools/gates.py --no-tests

.PHONY: format
format: install ## format the Python code and fix what can be fixed
	$(VENV)/ruff check --fix-only --quiet .
	$(VENV)/ruff format .

.PHONY: bench
bench: install ## measure fairbind in each mode, kube-scheduler and the machine's limits (an hour; writes docs/benchmarks; CONTENDERS="gate,bare openings" NODES=1000 ROUNDS=1 PODS=5000 BACKLOGS=1: less, which writes build/benchmark.json)
	$(VENV)/python tests/perf/bench.py $(if $(CONTENDERS),--only "$(CONTENDERS)") $(if $(NODES),--nodes "$(NODES)") $(if $(ROUNDS),--rounds "$(ROUNDS)") $(if $(PODS),--pods "$(PODS)") $(if $(BACKLOGS),--only-backlogs)

.PHONY: bench-exact
bench-exact: install ## measure the exact mechanisms beside the textbook's linear programs (writes docs/benchmarks/exact.md)
	$(VENV)/python tests/perf/exact.py

.PHONY: bench-trees
bench-trees: install ## measure what a tree of tenants costs a cycle (writes docs/benchmarks/trees.md)
	$(VENV)/python tests/perf/tree_cost.py

.PHONY: bench-gangs
bench-gangs: install ## measure what groups cost a cycle (writes docs/benchmarks/gangs.md; through an API server, beside Volcano: make bench CONTENDERS="fairbind,groups of 100,volcano" NODES=5000 BACKLOGS=1)
	@PYTHONPATH=tests exec $(VENV)/python tests/perf/gang_cost.py

.PHONY: gaps
gaps: install ## how long the event loop stands still in a large cluster; fails above a second (five minutes; ARGUMENTS="--nodes 5000 ...")
	@exec $(VENV)/python tests/perf/gaps.py --most 1.0 $(ARGUMENTS)

.PHONY: events
events: install ## what single events cost of the event loop, beside 5,000 waiting pods (two minutes; ARGUMENTS="--nodes 1000 ...")
	@exec $(VENV)/python tests/perf/events.py $(ARGUMENTS)

.PHONY: cycle-cost
cycle-cost: install ## what one change costs the deciding loop, in milliseconds (half a minute; ARGUMENTS="--rounds 40 --output path ...")
	@exec $(VENV)/python tests/perf/cycle_cost.py $(ARGUMENTS)

.PHONY: exam-perf
exam-perf: install ## Kubernetes' own throughput cases, with kube-scheduler and with fairbind (an hour; ONLY=part of a name, RENEW=1 with it: put these cases into the recorded result, LARGE=1: 5,000 nodes, an hour and a half; writes docs/benchmarks/exam.md)
	@exec $(VENV)/python tests/exam/speed.py $(if $(ONLY),--only "$(ONLY)") $(if $(RENEW),--renew) $(if $(LARGE),--large)

.PHONY: bench-sim
bench-sim: install ## measure the simulator (TRACES=folder of published traces; writes docs/benchmarks/simulator.md)
	$(VENV)/python tests/perf/sim.py $(if $(TRACES),--traces "$(TRACES)")

.PHONY: starvation
starvation: install ## how long tenants of large pods wait for their share, simulated (SEEDS=number, ONLY=part of a case's name; writes docs/benchmarks/starvation.md)
	$(VENV)/python tests/simulator/starvation.py $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(ONLY),--only "$(ONLY)")

.PHONY: reproduce
reproduce: install ## the papers' evaluations at their own size (about an hour; SMALL=paper: that one small, ONLY=paper, FIGURE=of it; writes docs/reproduction)
	@exec $(VENV)/python deploy/tools/reproduction.py $(if $(SMALL),--small "$(SMALL)") $(if $(ONLY),--only "$(ONLY)") $(if $(FIGURE),--figure "$(FIGURE)")

.PHONY: fairness-table
fairness-table: install ## measure how fair policies are beside the rules of others (TRACES=folder adds published traces, SEEDS=number, ONLY=workload, RENEW=1 with it: put it into the last result, OUTPUT=path; writes docs/fairness-table.md)
	@exec $(VENV)/python tests/fairness_table/fairness_table.py $(if $(TRACES),--traces "$(TRACES)") $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(ONLY),--only "$(ONLY)") $(if $(RENEW),--renew) $(if $(OUTPUT),--output "$(OUTPUT)")

.PHONY: faults
faults: install ## seeded faults against a whole system (N=number of them, SEED=number repeats a run, MODE=bind, gate or extender, ONLY=name of some, SHORT=1: as CI has them, WORLDS=number of control planes at once, GROW=1: add to what is recorded of the seed in this mode, OTHER=path of another version's packages, OUTPUT=path)
	@exec $(VENV)/python tests/faults/faults.py --count "$(N)" $(if $(SEED),--seed "$(SEED)") $(if $(MODE),--mode "$(MODE)") $(if $(SHORT),--short) \
	  $(if $(WORLDS),--worlds "$(WORLDS)") $(if $(GROW),--grow) $(if $(ONLY),--only "$(ONLY)") $(if $(OTHER),--other "$(OTHER)") $(if $(OUTPUT),--output "$(OUTPUT)",--page)

.PHONY: adversary
adversary: install ## attacks and thefts against a whole system (NODES=number, 1000 by default, TENANTS=number, MODE=bind, gate or extender, ONLY=name of some, which go to build, with RENEW=1 into what is recorded, SMALL=1: 200 nodes and a tenth of each, PROBES=pods of a p99, ROUNDS=number, OUTPUT=path)
	@exec $(VENV)/python tests/adversary/adversary.py $(if $(SMALL),--small,--nodes "$(or $(NODES),1000)") $(if $(ONLY),--only "$(ONLY)") \
	  $(if $(TENANTS),--tenants "$(TENANTS)") $(if $(MODE),--mode "$(MODE)") $(if $(PROBES),--probes "$(PROBES)") $(if $(ROUNDS),--rounds "$(ROUNDS)") \
	  $(if $(RENEW),--renew) $(if $(OUTPUT),--output "$(OUTPUT)",--page)

.PHONY: docs
docs: install ## write the generated documents again
	$(VENV)/python deploy/tools/chart.py
	$(VENV)/python deploy/tools/docs.py

.PHONY: site
site: install ## build the site of the documents into build/site, links checked (SITE=version: a release's beside those there)
	@exec $(VENV)/python deploy/tools/docsite/main.py $(if $(SITE),--version "$(SITE)")

.PHONY: local-up
local-up: install ## start a control plane that stays (NODES=number of fake nodes)
	@$(LOCAL) up --nodes "$(or $(NODES),60)"

.PHONY: local-kubeconfig
local-kubeconfig: install ## print the path of its kubeconfig: export KUBECONFIG="$(make -s local-kubeconfig)"
	@$(LOCAL) kubeconfig

.PHONY: local-status
local-status: install ## say whether it runs and what is in it
	@$(LOCAL) status

.PHONY: local-down
local-down: install ## stop it and remove what it kept
	@$(LOCAL) down

.PHONY: image
image: install ## build the operator's image, fairbind:VERSION (IMAGE=name:tag for another name)
	@$(KIND) image $(if $(IMAGE),--tag "$(IMAGE)")

.PHONY: sbom
sbom: install ## write what the image consists of as CycloneDX to dist (IMAGE=name:tag adds its Debian packages)
	@exec $(VENV)/python deploy/tools/sbom.py $(if $(IMAGE),--image "$(IMAGE)")

.PHONY: vulnerabilities
vulnerabilities: install ## known vulnerabilities of the packages in all locks, as the package index knows them
	@status=0; for lock in deploy tests docs; do \
	  $(VENV)/uv tool run --from pip-audit==2.10.1 pip-audit --disable-pip --requirement "$$lock/requirements.txt" || status=1; \
	done; exit $$status

.PHONY: release
release: install ## build all parts of a release twice into dist/release and compare (KEY=file signs, BUILDER=URI says who builds, BASE=NAME@sha256:... another base of the image, PLATFORMS=linux/amd64 leaves out arm64, IMAGES="a b" takes built images, IMAGES=none leaves them out)
	@exec $(VENV)/python deploy/tools/release/main.py $(if $(KEY),--key "$(KEY)") $(if $(BUILDER),--builder "$(BUILDER)") $(if $(BASE),--base "$(BASE)") \
	  $(if $(filter none,$(IMAGES)),--without-image,$(if $(IMAGES),--layouts $(IMAGES),$(addprefix --platform ,$(PLATFORMS))))

.PHONY: release-image
release-image: install ## the image alone, for this machine's processor, into dist/release-image
	@exec $(VENV)/python deploy/tools/release/main.py $(if $(BASE),--base "$(BASE)") --image-only --output dist/release-image

.PHONY: kind-up
kind-up: install ## make a kind cluster that stays, with fairbind's image in its nodes; needs a Docker engine
	@$(KIND) up

.PHONY: kind-kubeconfig
kind-kubeconfig: install ## print the path of its kubeconfig: export KUBECONFIG="$(make -s kind-kubeconfig)"
	@$(KIND) kubeconfig

.PHONY: kind-down
kind-down: install ## remove it
	@$(KIND) down

.PHONY: clean
clean: ## remove what make made in this tree (the cache outside it stays)
	@if test -x $(VENV)/python; then $(LOCAL) down --quiet || true; fi
	@if test -x $(VENV)/python && test -d .local/kind; then $(KIND) down || true; fi
	rm -rf .venv .local build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	rm -rf operator/fairbind.egg-info
