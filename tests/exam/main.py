"""Lets kube-scheduler and fairbind sit the same exam, each on a control plane of its own.

There is no kube-scheduler where fairbind sits it: fairbind is the cluster's only scheduler, under the name that pods
have when they name none. So nothing about the specs is changed, and nothing else can have placed their pods.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import re
import sys
import tempfile
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from e2e.clusters import Cluster
from e2e.operators import start_operator
from exam.lists import EXCEPTIONS
from exam.report import PAGE, render_page
from exam.specs import SKIPPED, Outcome, ReportError, Verdict, judge, read_outcomes
from localplane import processes
from localplane.nodes import ZONES, make_node
from localplane.plane import ControlPlane
from localplane.tools import DEFAULT, KUBERNETES_VERSION, Tools, ensure_tools

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "reliability" / "results" / "exam.json"
KUBELET = Path(__file__).with_name("kubelet.yaml")
SCHEDULER_NAME = "default-scheduler"
OPERATOR_LOG = "operator.log"
NODES = 3
"""One in each zone. Some specs look at each pod of each node once a second, so more only take longer."""
SERVER = {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"}
SEED = 1
"""Of the order of the specs, so that both candidates have them in the same one."""
FEATURE_GATES, APIS = ("GenericWorkload",), ("scheduling.k8s.io/v1beta1",)
"""Features that specs ask for and that are off by default."""
FLAKY = r"\[Flaky\]"
LONGEST_EXAM = "3h"

Json = dict[str, Any]


class ExamPlane(ControlPlane):
    """A control plane whose kubelets do what the specs need of them."""

    def _write_files(self) -> None:
        super()._write_files()
        config = self.layout.kwok_config
        config.write_text(compute_stages(config.read_text(encoding="utf-8")), encoding="utf-8")


def compute_stages(stages: str) -> str:
    """Return what kwok plays: these stages and those of the exam, which delete pods with hooks later than others."""
    documents = [*yaml.safe_load_all(stages), *yaml.safe_load_all(KUBELET.read_text(encoding="utf-8"))]
    selectors = {
        document["metadata"]["name"]: document["spec"]["selector"]["matchExpressions"]
        for document in documents
        if document["kind"] == "Stage"
    }
    hook = selectors["pod-delete-after-hook"][-1]["jq"]["key"]
    selectors["pod-delete"].append({"jq": {"key": hook, "operator": "DoesNotExist"}})
    return yaml.safe_dump_all(documents)


def main() -> int:
    """Do what the command line says; return the exit status: 1 when a spec does not pass that should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="REGEX", default="", help="specs whose name matches; writes no result")
    parser.add_argument("--all", action="store_true", help="let fairbind try also what the list excepts: half an hour")
    parser.add_argument("--renew", action="store_true", help="with --only: put these specs into the recorded result")
    parser.add_argument(
        "--together", action="store_true", help="let both sit it at the same time: most of it is waiting"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the result goes")
    parser.add_argument("--logs", type=Path, default=Path("build/exam"), help="where Ginkgo's output goes")
    arguments = parser.parse_args()
    if arguments.renew and not arguments.only:
        parser.error("--renew is for some specs: name them with --only")
    logs: Path = arguments.logs.absolute()
    logs.mkdir(parents=True, exist_ok=True)
    tools = ensure_tools([*DEFAULT, "kube-scheduler", "scheduling-exam"])
    left_out = [] if arguments.all else [*EXCEPTIONS]
    try:
        control, ours = sit_both(tools, logs, arguments.only, left_out, together=arguments.together)
    except ReportError as error:
        print(f"no result: {error}; see {logs}", file=sys.stderr)
        return 1
    result = make_result(control, ours)
    if arguments.only:
        result["specs"] = [spec for spec in result["specs"] if has_run(spec)]
    if arguments.renew:
        result = renew(json.loads(arguments.output.read_text(encoding="utf-8")), result)
    faults = [spec for spec in result["specs"] if spec["verdict"] in {Verdict.FAILED, Verdict.STALE}]
    for spec in faults:
        print(f"{spec['verdict']}: {spec['name']}\n  {spec['fairbind']['failure'] or spec['control']['failure']}")
    passed = sum(spec["verdict"] == Verdict.PASSED for spec in result["specs"])
    print(f"{passed} passed, {len(faults)} did not hold, {len(result['specs'])} in all", flush=True)
    if not arguments.only or arguments.renew:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        if arguments.output == RESULTS:
            PAGE.write_text(render_page(result), encoding="utf-8")
    return 1 if faults else 0


def sit_both(
    tools: Tools, logs: Path, only: str, left_out: Collection[str], *, together: bool
) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    """Let kube-scheduler and fairbind sit the exam and return both outcomes. together: at the same time."""
    if not together:  # without a result of the first there is none, and half an hour of the second would be for nothing
        control = sit(tools, logs, only, is_control=True, left_out=[])
        return control, sit(tools, logs, only, is_control=False, left_out=left_out)
    with ProcessPoolExecutor(max_workers=2) as pool:
        theirs = pool.submit(sit, tools, logs, only, is_control=True, left_out=[])
        ours = pool.submit(sit, tools, logs, only, is_control=False, left_out=left_out)
        return theirs.result(), ours.result()


def make_result(control: dict[str, Outcome], ours: dict[str, Outcome]) -> Json:
    """Return the result as JSON: each spec with both outcomes, the verdict and why it is as it is."""
    specs = []
    for name in sorted(control.keys() | ours.keys()):
        missing = Outcome("missing")
        theirs, mine = control.get(name, missing), ours.get(name, missing)
        verdict = judge(theirs, mine, excepted=name in EXCEPTIONS)
        specs.append(
            {
                "name": name,
                "verdict": str(verdict),
                "why": EXCEPTIONS.get(name, ""),
                "control": describe(theirs),
                "fairbind": describe(mine),
            }
        )
    version = ".".join(map(str, KUBERNETES_VERSION))
    day = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    return {"day": day, "kubernetes": version, "nodes": NODES, "seed": SEED, "specs": specs}


def renew(recorded: Json, result: Json) -> Json:
    """Return a recorded result with the specs of a later run of some in the place of theirs; each says when it ran."""
    later = {spec["name"]: spec | {"day": result["day"], "again": "both"} for spec in result["specs"] if has_run(spec)}
    return recorded | {"specs": [later.get(spec["name"], spec) for spec in recorded["specs"]]}


def has_run(spec: Json) -> bool:
    """Tell whether a spec ran with one of the two."""
    return bool(spec["control"]["state"] != SKIPPED or spec["fairbind"]["state"] != SKIPPED)


def describe(outcome: Outcome) -> Json:
    """Return an outcome as JSON."""
    return {"state": outcome.state, "seconds": outcome.seconds, "failure": outcome.failure}


def sit(tools: Tools, logs: Path, only: str, *, is_control: bool, left_out: Collection[str]) -> dict[str, Outcome]:
    """Start a cluster with one scheduler, run the specs and return their outcomes.

    only: a regular expression for names. left_out: names of specs that are not run.
    """
    candidate = "kube-scheduler" if is_control else "fairbind"
    report, log = logs / f"{candidate}.jsonl", logs / f"{candidate}.log"
    for path in (report, log, *([] if is_control else [logs / OPERATOR_LOG])):
        path.unlink(missing_ok=True)  # what another run has left there would be read as this one's
    with run_cluster(tools, logs, is_control=is_control) as kubeconfig, tempfile.TemporaryDirectory() as folder:
        command = compute_command(tools, kubeconfig, report, only=only, left_out=left_out)

        def say(seconds: float) -> None:
            print(f"{candidate} sits the exam; {seconds:.0f} s so far", flush=True)

        say(0.0)
        processes.run_aloud(command, log, say, directory=Path(folder))  # the lines say what failed
    outcomes = read_outcomes(report)
    print(f"{candidate}: {sum(outcome.state == 'passed' for outcome in outcomes.values())} passed", flush=True)
    return outcomes


def compute_command(
    tools: Tools, kubeconfig: Path, report: Path, *, only: str, left_out: Collection[str]
) -> list[str | Path]:
    """Return the command line of the exam."""
    skipped = [FLAKY, *map(compute_pattern, left_out)]
    return [
        tools.path("scheduling-exam"),
        f"--kubeconfig={kubeconfig}",
        "--provider=skeleton",
        f"--ginkgo.seed={SEED}",
        f"--outcomes={report}",
        f"--ginkgo.timeout={LONGEST_EXAM}",
        "--ginkgo.no-color",
        *(f"--ginkgo.skip={pattern}" for pattern in skipped),
        *([f"--ginkgo.focus={only}"] if only else []),
    ]


def compute_pattern(name: str) -> str:
    """Return a regular expression for the full text of a spec, where tags stand between the words of its name."""
    return r"(?:\s+\[[^\]]*\])*\s+".join(map(re.escape, name.split()))


@contextlib.contextmanager
def run_cluster(tools: Tools, logs: Path, *, is_control: bool) -> Iterator[Path]:
    """Run a control plane with fake nodes in three zones and one scheduler; give the administrator's kubeconfig."""
    nodes = [make_node(f"node-{number}", zone=ZONES[number % 3], allocatable=SERVER) for number in range(NODES)]
    with ExamPlane(tools, scheduler=is_control, feature_gates=FEATURE_GATES, apis=APIS) as plane:
        plane.add_nodes(nodes)
        plane.wait_nodes_ready()
        if is_control:
            yield plane.kubeconfig
            return
        with Cluster.connect(plane.kubeconfig, tools, plane) as cluster:
            cluster.install_chart({"operator": {"enabled": False}, "schedulerName": SCHEDULER_NAME})
            arguments = [f"--scheduler-name={SCHEDULER_NAME}"]
            operator = start_operator(cluster.operator_kubeconfig(), logs / OPERATOR_LOG, arguments)
            try:
                operator.wait_ready()
                yield plane.kubeconfig
            finally:
                operator.stop()
                operator.close()


if __name__ == "__main__":
    sys.exit(main())
