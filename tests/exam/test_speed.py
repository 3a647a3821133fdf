"""How throughput cases are read, played and shown, on an API server in memory that binds what it is given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from exam.cases import FILE, FOLDER, CaseError, Size, find_measured, read_case
from exam.speed_main import check_renewable, compute_rounds, parse, renew, write, write_page
from exam.speed_report import HEAD, PAGE, find_below, render_below, render_large, render_spent, render_table
from exam.steps import Measured, Player
from exam.templates import TemplateError, render
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.errors import ApiError
from perf.measure import BindingWatch
from perf.workload import RUN_LABEL

Json = dict[str, Any]

CONFIG = """
- name: Small
  defaultPodTemplatePath: ../templates/pod.yaml
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
    nodeTemplatePath: ../templates/node.yaml
    labelNodePrepareStrategy: {labelKey: zone, labelValues: [a, b]}
  - opcode: createNamespaces
    prefix: made
    count: 2
  - opcode: createPodSets
    count: 2
    namespacePrefix: made
    createPodsOp: {opcode: createPods, countParam: $pods}
  - opcode: churn
    mode: recreate
    number: 1
    intervalMilliseconds: 1
    templatePaths: [../templates/large.yaml]
  - opcode: createPods
    countParam: $pods
    collectMetrics: true
  - opcode: barrier
  - opcode: startCollectingMetrics
    name: some
    namespaces: [apart]
    labelSelector: {color: red}
  - opcode: createPods
    count: 2
    namespace: apart
    skipWaitToCompletion: true
  - opcode: createPods
    count: 1
    namespace: apart
    podTemplatePath: ../templates/large.yaml
  - opcode: createPods
    count: 1
    namespace: elsewhere
  - opcode: barrier
    stageRequirement: Attempted
  - opcode: updateAny
    count: 1
    templatePath: ../templates/update.yaml
  - opcode: deletePods
    namespace: apart
    deletePodsPerSecond: 1000
  - opcode: stopCollectingMetrics
  workloads:
  - name: 3Nodes
    params: {nodes: 3, pods: 4}
- name: Claims
  defaultPodTemplatePath: ../templates/pod.yaml
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
    nodeTemplatePath: ../templates/node.yaml
    nodeAllocatableStrategy:
      nodeAllocatable: {attachable-volumes-csi-x: "39"}
      csiNodeAllocatable: {x: {count: 39}}
  - opcode: createPods
    count: 2
    persistentVolumeTemplatePath: ../templates/volume.yaml
    persistentVolumeClaimTemplatePath: ../templates/claim.yaml
    collectMetrics: true
  workloads: [{name: any, params: {nodes: 2}}]
- name: Steady
  workloadTemplate: [{opcode: createPods, count: 1, steadyState: true}]
  workloads: [{name: any}]
- name: Bare
  workloadTemplate: [{opcode: createPods, count: 1}]
  workloads: [{name: any}]
- name: Groups
  workloadTemplate: [{opcode: createPodGroups}]
  workloads: [{name: any}]
- name: Lost
  workloadTemplate: [{opcode: createNodes, countParam: $missing}]
  workloads: [{name: any}]
"""
TEMPLATES = {
    "pod": "kind: Pod\nmetadata: {generateName: p-, labels: {color: red}}\n"
    "spec: {containers: [{name: 'c{{ .Index }}'}]}",
    "node": "kind: Node\nmetadata: {name: 'n-{{.Index}}'}\nstatus: {capacity: {cpu: 4}, conditions: [{type: Ready}]}",
    "pod-default": "kind: Pod\nmetadata: {generateName: bare-}",
    "large": "kind: Pod\nmetadata: {generateName: large-}\nspec: {containers: [], priority: 10}",
    "volume": "kind: PersistentVolume\nspec: {csi: {driver: x}}",
    "claim": "kind: PersistentVolumeClaim\nspec: {accessModes: [ReadOnlyMany]}",
    "update": "kind: Node\nmetadata: {name: 'n-{{.Index}}'}\nspec: {taints: []}\nstatus: {capacity: {cpu: 8}}",
}


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module with cases of all kinds."""
    folder = tmp_path / FOLDER / "small"
    folder.mkdir(parents=True)
    (folder / FILE).write_text(CONFIG, encoding="utf-8")
    (folder.parent / "templates").mkdir()
    for name, text in TEMPLATES.items():
        (folder.parent / "templates" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return tmp_path


LISTED = {"pods", "nodes", "services", "persistentvolumes", "persistentvolumeclaims", "csinodes"}


class Server:
    """Objects by path. Every pod that carries a run's label is bound at once, but for those that `never` names."""

    def __init__(self, never: str = "") -> None:
        self.objects: dict[str, Json] = {}
        self.done: list[tuple[str, str]] = []
        self.never = never
        self.changed = asyncio.Condition()

    async def request(self, method: str, path: str, *, body: bytes | None = None, **_: Any) -> bytes:
        await asyncio.sleep(0)
        path = path.partition("?")[0]
        self.done.append((method, path))
        if method == "POST":
            return json.dumps(await self.create(path, json.loads(body or b""))).encode()
        if method == "DELETE":
            for name in [name for name in self.objects if name == path or name.rpartition("/")[0] == path]:
                del self.objects[name]
            return b"{}"
        if method == "PUT":
            self.objects[path.removesuffix("/status")] = json.loads(body or b"")
            return body or b""
        if path.endswith("/serviceaccounts/default"):
            return b"{}"
        if path in self.objects:
            return json.dumps(self.objects[path]).encode()
        if path.rpartition("/")[2] not in LISTED:
            raise ApiError(404, "NotFound", path)
        items = [thing for name, thing in self.objects.items() if name.rpartition("/")[0] == path]
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()

    async def create(self, path: str, thing: Json) -> Json:
        name = f"{path}/{thing['metadata']['name']}"
        if name in self.objects:
            raise ApiError(409, "AlreadyExists", name)
        thing.setdefault("status", {})
        if path.endswith("/nodes"):
            thing["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            thing.setdefault("spec", {})
        elif path.endswith("/persistentvolumeclaims"):
            thing["status"]["phase"] = "Bound"
        elif path.endswith("/pods"):
            thing["metadata"]["resourceVersion"] = "1"
            thing["status"]["conditions"] = [{"type": "PodScheduled"}]
            if not (self.never and self.never in thing["metadata"]["name"]):
                thing["spec"]["nodeName"] = "n-0"
        async with self.changed:
            self.objects[name] = thing
            self.changed.notify_all()
        return thing

    async def watch_lines(self, _: str, query: Json, **__: Any) -> AsyncIterator[bytes]:
        label, told = query["labelSelector"].partition("=")[2], set[str]()
        while True:
            for name, thing in list(self.objects.items()):
                is_ours = thing["metadata"].get("labels", {}).get(RUN_LABEL) == label and "nodeName" in thing["spec"]
                if is_ours and name not in told:
                    told.add(name)
                    yield json.dumps({"type": "ADDED", "object": thing}).encode()
            async with self.changed:
                await self.changed.wait()


def play(module: Path, server: Server, name: str = "Small", workload: str = "3Nodes") -> list[Measured]:
    async def run() -> list[Measured]:
        player = Player(cast("ApiClient", server), "f0", "fairbind")
        async with player:
            measured = await player.play(read_case(module, "small", name, Size(workload)))
        await player.clear(keeps_nodes=False)
        return measured

    return asyncio.run(run())


def test_numbers_and_templates_stand_in_the_steps(module: Path) -> None:
    case = read_case(module, "small", "Small", Size("3Nodes"))
    nodes, _, sets, _, pods, *_ = case.operations

    assert (nodes.count, pods.count, sets.fields["createPodsOp"].count) == (3, 4, 4)
    assert nodes.fields["nodeTemplatePath"].make(2, 3)["metadata"]["name"] == "n-2"
    assert pods.fields["podTemplatePath"].make(1, 4)["spec"]["containers"] == [{"name": "c1"}]
    assert pods.namespace == "namespace-4"
    assert read_case(module, "small", "Small", Size("")).workload == "3Nodes"
    assert find_measured(case.operations) == [(4, 5), (6, 13)]


def test_pods_without_a_template_are_plain(module: Path) -> None:
    (pods,) = read_case(module, "small", "Bare", Size("any")).operations

    assert pods.fields["podTemplatePath"].make(0, 1)["metadata"] == {"generateName": "bare-"}


@pytest.mark.parametrize(
    ("name", "workload", "words"),
    [
        ("Small", "5000Nodes", "has no Small/5000Nodes"),
        ("Steady", "any", "createPods with steadyState is not played"),
        ("Groups", "any", "createPodGroups is not played"),
        ("Lost", "any", r"the workload has no \$missing"),
    ],
)
def test_what_cannot_be_played_as_it_is_is_refused(module: Path, name: str, workload: str, words: str) -> None:
    with pytest.raises(CaseError, match=words):
        read_case(module, "small", name, Size(workload))


@pytest.mark.parametrize("text", ["{{if .x}}", "{{.Name}}", "{{Mod .Index}}", "{{Power .Index 2}}", "{{ Index }}"])
def test_a_template_that_asks_for_more_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        render(text, {"Index": 1, "Count": 2})


def test_functions_of_templates() -> None:
    text = "{{AddInt 1 .Index}} {{ SubtractInt .Index 1 }} {{MultiplyInt 2 .Index}} "
    text += "{{DivideInt .Index 2}} {{Mod .Count 4}}"

    assert render(text, {"Index": 7, "Count": 9}) == "8 6 14 3 1"


def test_a_case_is_played_step_by_step_and_cleared(module: Path) -> None:
    server = Server()
    plain, some = play(module, server)

    assert (plain.pods, plain.bound, some.pods, some.bound) == (4, 4, 2, 2)
    assert plain.rate > 0
    assert set(plain.spent) <= {"create pods", "until bound"}
    assert sum(part.bound for part in some.spent.values()) <= some.bound
    assert sum(part.seconds for part in some.spent.values()) <= some.seconds
    created = [path for method, path in server.done if method == "POST"]
    assert created.count("/api/v1/nodes") == 3
    assert created.count("/api/v1/namespaces/made-0/pods") == created.count("/api/v1/namespaces/made-1/pods") == 4
    assert "/api/v1/namespaces/namespace-3/pods" in created  # the churn
    assert "/apis/scheduling.k8s.io/v1/priorityclasses" in created
    assert ("PUT", "/api/v1/nodes/n-0/status") in server.done
    assert (
        sum(path.startswith("/api/v1/namespaces/apart/pods/") for method, path in server.done if method == "DELETE")
        == 3
    )
    assert [name for name in server.objects if "/pods/" in name or name.startswith("/api/v1/nodes/")] == []


def note_made(server: Server) -> dict[str, Json]:
    """Let a server note what is created, as it comes, in this order."""
    made: dict[str, Json] = {}
    create = server.create

    async def note(path: str, thing: Json) -> Json:
        made[f"{path}/{thing['metadata']['name']}"] = json.loads(json.dumps(thing))
        return await create(path, thing)

    server.create = note  # type: ignore[method-assign]  # to see things as they came
    return made


def test_numbers_of_a_workload_can_be_others(module: Path) -> None:
    case = read_case(module, "small", "Small", Size("3Nodes", {"nodes": 7}))

    assert (case.operations[0].count, case.operations[4].count) == (7, 4)


def test_each_pod_has_a_claim_that_is_bound_before_the_pod_comes(module: Path) -> None:
    made = note_made(server := Server())
    (measured,) = play(module, server, "Claims", "any")
    paths = [path.rpartition("/")[0] for path in made]
    claims = "/api/v1/namespaces/namespace-1/persistentvolumeclaims"

    assert measured.bound == 2
    assert paths[-6:] == ["/api/v1/persistentvolumes"] * 2 + [claims] * 2 + ["/api/v1/namespaces/namespace-1/pods"] * 2
    for index, pod in enumerate(list(made.values())[-2:]):
        volume, claim = f"namespace-1-vol-{index}", pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
        assert made[f"{claims}/{claim}"]["spec"]["volumeName"] == volume
        assert made[f"/api/v1/persistentvolumes/{volume}"]["spec"]["claimRef"]["name"] == claim
    assert ("GET", claims) in server.done
    assert [path for path in server.objects if not path.startswith("/api/v1/namespaces/namespace-1")] == []


def test_a_node_says_how_many_volumes_it_may_have(module: Path) -> None:
    made = note_made(server := Server())
    play(module, server, "Claims", "any")

    assert made["/api/v1/nodes/n-1"]["status"]["allocatable"] == {"cpu": 4, "attachable-volumes-csi-x": "39"}
    (driver,) = made["/apis/storage.k8s.io/v1/csinodes/n-1"]["spec"]["drivers"]
    assert driver == {"name": "x", "nodeID": "n-1", "allocatable": {"count": 39}}


def test_nodes_and_pods_are_what_the_template_says_and_what_the_run_adds(module: Path) -> None:
    made = note_made(server := Server())
    play(module, server)
    nodes = [made[f"/api/v1/nodes/n-{number}"] for number in range(3)]
    pods = [thing for path, thing in made.items() if "/namespace-4/pods/" in path]

    assert [node["metadata"]["labels"]["zone"] for node in nodes] == ["a", "b", "a"]
    assert nodes[0]["status"] == {"capacity": {"cpu": 4}, "allocatable": {"cpu": 4}}
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"fairbind"}
    assert {pod["metadata"]["labels"]["color"] for pod in pods} == {"red"}
    assert (
        len({pod["metadata"]["name"] for pod in pods})
        == len({pod["metadata"]["labels"][RUN_LABEL] for pod in pods}) * 4
    )


def test_pods_that_are_never_bound_are_told(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def give_up(watch: BindingWatch, count: int, **_: float) -> bool:
        for _number in range(50):
            await asyncio.sleep(0)
        return len(watch.bound_at) >= count

    monkeypatch.setattr(BindingWatch, "wait_bound", give_up)
    measured = play(module, Server(never="p-"))

    assert [(part.pods, part.bound) for part in measured] == [(4, 0), (2, 0)]


def make_run(case: str, who: str, turn: int, seconds: float, bound: int = 100) -> Json:
    part = {"pods": 100, "bound": bound, "seconds": seconds}
    return {"case": case, "workload": "w", "contender": who, "turn": turn, "parts": [part]}


RESULT: Json = {
    "date": "2026-01-01T00:00:00+00:00",
    "machine": {"cores": 2},
    "versions": {"fairbind": "0.1.0 (abc)", "etcd": "3"},
    "runs": [
        make_run("SchedulingBasic", "fairbind", 0, 0.5),
        make_run("SchedulingBasic", "kube-scheduler", 0, 1.0),
        make_run("SchedulingBasic", "fairbind", 1, 0.25),
        make_run("Slow", "fairbind", 0, 2.0, bound=90),
        make_run("Slow", "kube-scheduler", 0, 1.0),
    ],
}


def read_table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_a_row_has_its_rounds_both_ratios_and_its_origin() -> None:
    rows = read_table(render_table(RESULT))

    assert rows[0] == HEAD
    origin = "2026-01-01 abc"
    assert rows[2] == ["SchedulingBasic", "2", "100", "300 (200 to 400)", "3.00", "100%", "100", origin]
    assert rows[3] == ["Slow", "1", "100", "45", "0.45", "15%", "fairbind: 90 of 100", origin]


def test_a_ratio_of_many_rounds_has_a_standard_error() -> None:
    runs = [make_run("Few", who, turn, 1.0 + turn) for who in ("fairbind", "kube-scheduler") for turn in range(3)]
    same = [make_run("Same", who, turn, 1.0) for who in ("fairbind", "kube-scheduler") for turn in range(3)]
    ratios = [row[4] for row in read_table(render_table({**RESULT, "runs": [*runs, *same]}))[2:]]

    # 100, 50 and 33 pods a second: the mean 61.1 has the standard error 20.0.
    assert ratios == ["1.00 ± 0.46", "1.00 ± 0.00"]


def test_cases_with_few_pods_have_more_rounds() -> None:
    assert [compute_rounds(pods) for pods in (0, 100, 126, 300, 501, 6_000)] == [8, 8, 8, 4, 2, 2]


def test_cases_that_are_played_again_take_the_place_of_recorded_ones_and_say_when() -> None:
    later = {
        **RESULT,
        "date": "2026-02-02T00:00:00+00:00",
        "versions": {"fairbind": "0.1.0 (def)", "etcd": "3"},
        "runs": [make_run("Slow", "fairbind", 0, 0.5), make_run("More", "fairbind", 0, 0.5)],
    }
    check_renewable(RESULT, later)
    once = renew(RESULT, later)
    rows = read_table(render_table(once))

    assert [(row[0], row[3], row[-1]) for row in rows[2:]] == [
        ("SchedulingBasic", "300 (200 to 400)", "2026-01-01 abc"),
        ("Slow", "200", "2026-02-02 def"),
        ("More", "200", "2026-02-02 def"),
    ]
    assert renew(once, later) == once
    assert "renewed" not in RESULT


def test_a_case_stands_beside_the_plain_case_of_its_commit() -> None:
    later = {
        **RESULT,
        "versions": {"fairbind": "0.1.0 (def)", "etcd": "3"},
        "runs": [make_run("SchedulingBasic", "fairbind", 0, 1.0), make_run("More", "fairbind", 0, 2.0)],
    }
    once = renew(RESULT, later)

    assert [row[5] for row in read_table(render_table(once))[2:]] == ["100%", "15%", "50%"]
    assert renew(once, later) == once
    all_later = renew(once, {**later, "runs": [make_run("Slow", "fairbind", 0, 4.0)]})
    assert [row[5] for row in read_table(render_table(all_later))[2:]] == ["100%", "25%", "50%"]
    assert all_later["plains"] == {}


@pytest.mark.parametrize("other", [{"machine": {"cores": 4}}, {"versions": {"fairbind": "0.1.0 (abc)", "etcd": "4"}}])
def test_figures_of_another_machine_or_other_programs_do_not_stand_beside_recorded_ones(other: Json) -> None:
    with pytest.raises(ValueError, match="play all cases"):
        check_renewable(RESULT, {**RESULT, **other})


@pytest.mark.parametrize(
    "arguments",
    [["--renew"], ["--renew", "--only=Slow", "--small"], ["--renew", "--only=Slow", "--output=/does/not/exist.json"]],
)
def test_only_some_cases_at_their_size_are_put_into_a_result_that_is_recorded(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)


def test_some_cases_are_written_only_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exam.speed_main.RESULTS", tmp_path / "exam.json")
    monkeypatch.setattr("exam.speed_main.PAGE", tmp_path / "exam.md")
    monkeypatch.setattr("exam.speed_main.LARGE_RESULTS", tmp_path / "large.json")
    monkeypatch.setattr("exam.speed_main.render_page", lambda result, _large: render_table(result))
    recorded = tmp_path / "exam.json"
    recorded.write_text(json.dumps(RESULT), encoding="utf-8")
    later = {**RESULT, "runs": [make_run("Slow", "fairbind", 0, 0.5)]}
    options = [f"--output={recorded}", "--only=Slow"]

    write(parse(options), later)
    assert json.loads(recorded.read_text(encoding="utf-8")) == RESULT
    write(parse([*options, "--renew"]), later)
    assert len(json.loads(recorded.read_text(encoding="utf-8"))["runs"]) == 4
    assert "SchedulingBasic" in (tmp_path / "exam.md").read_text(encoding="utf-8")
    write(parse([f"--output={recorded}"]), later)
    assert json.loads(recorded.read_text(encoding="utf-8")) == later


def test_where_the_time_of_a_case_goes_is_shown_where_it_creates_nodes() -> None:
    def make(who: str, turn: int, tried: float) -> Json:
        spent = {
            "create pods": {"seconds": 2.0, "bound": 0},
            "until tried": {"seconds": tried, "bound": 10},
            "create nodes": {"seconds": 1.0, "bound": 40},
            "until bound": {"seconds": 0.5, "bound": 50},
        }
        run = make_run("Nodes", who, turn, 3.5 + tried)
        return {**run, "parts": [{**run["parts"][0], "spent": spent}]}

    runs = [make("fairbind", 0, 1.0), make("fairbind", 1, 3.0), make("kube-scheduler", 0, 4.0), *RESULT["runs"]]
    rows = read_table(render_spent({**RESULT, "runs": runs}))

    assert rows[2:] == [
        ["the case creates pods", "2.0", "0", "2.0", "0"],
        ["until all have been tried", "4.0", "10", "2.0", "10"],
        ["the case creates nodes, until they are ready", "1.0", "40", "1.0", "40"],
        ["until all are bound", "0.5", "50", "0.5", "50"],
        ["pods/s of the last two", "60", "", "60", ""],
    ]


def test_the_published_page_is_made_from_the_published_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exam.speed_main.PAGE", tmp_path / "exam.md")
    write_page()

    assert PAGE.read_text(encoding="utf-8") == (tmp_path / "exam.md").read_text(encoding="utf-8")


def test_a_large_cluster_has_a_section_of_its_own() -> None:
    section = render_large({**RESULT, "runs": RESULT["runs"][3:]})

    assert section.startswith("## On 5,000 nodes\n")
    assert "- Slow: 0.45 x kube-scheduler" in section
    assert section.endswith("| 2026-01-01 abc |\n\n")


def test_what_is_below_what_is_wanted_is_named() -> None:
    assert find_below(RESULT) == [
        ("Slow", "0.45 x kube-scheduler"),
        ("Slow", "15% of our plain case; kube-scheduler: 100% of its own"),
    ]
    assert "- Slow: 0.45 x kube-scheduler" in render_below(RESULT)
    assert render_below({**RESULT, "runs": RESULT["runs"][:3]}) == "All cases reach both."
