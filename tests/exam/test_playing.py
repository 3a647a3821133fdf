"""How throughput cases are read and played, on an API server in memory that binds what it is given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from exam.cases import FILE, FOLDER, Case, CaseError, Operation, Size, Template, find_measured, keeps_nodes, read_case
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


CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
LISTED = {"pods", "nodes", "services", "persistentvolumes", "persistentvolumeclaims", "csinodes"}


class Server:
    """Objects by path. Every pod that carries a run's label is bound at once, but for those that `never` names."""

    def __init__(self, never: str = "") -> None:
        self.unbound: list[Json] = []
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
        listed = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
        if path.endswith("/persistentvolumeclaims"):  # each GET of the claims binds one more of them
            for claim in self.unbound[:1]:
                claim["status"]["phase"] = "Bound"
            del self.unbound[:1]
        return listed

    async def create(self, path: str, thing: Json) -> Json:
        name = f"{path}/{thing['metadata']['name']}"
        if name in self.objects:
            raise ApiError(409, "AlreadyExists", name)
        thing.setdefault("status", {})
        if path.endswith("/nodes"):
            thing["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            thing.setdefault("spec", {})
        elif path.endswith("/persistentvolumeclaims"):
            thing["status"]["phase"] = "Pending"
            self.unbound.append(thing)
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
        case = read_case(module, "small", name, Size(workload))
        await player.prepare(case)
        async with player:
            measured = await player.play(case)
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
    looks = [place for place, done in enumerate(server.done) if done == ("GET", claims)]
    first_pod = server.done.index(("POST", "/api/v1/namespaces/namespace-1/pods"))
    assert looks[2] < first_pod, "at the third look both were bound"
    assert list(server.objects) == ["/api/v1/namespaces/namespace-1"]


def test_the_next_run_of_a_case_has_the_same_nodes_where_nothing_changes_them(module: Path) -> None:
    server, case = Server(), read_case(module, "small", "Claims", Size("any"))

    async def run() -> list[int]:
        first = Player(cast("ApiClient", server), "f0", "fairbind")
        await first.prepare(case)
        async with first:
            await first.play(case)
        await first.clear(keeps_nodes=True)
        left = [path for path in server.objects if "namespaces" not in path]
        assert left == [
            *(f"/apis/storage.k8s.io/v1/csinodes/n-{n}" for n in range(2)),
            *(f"/api/v1/nodes/n-{n}" for n in range(2)),
        ]
        second = Player(cast("ApiClient", server), "k0", "default-scheduler", first.nodes)
        await second.prepare(case)
        async with second:
            return [measured.bound for measured in await second.play(case)]

    assert keeps_nodes(case)
    assert asyncio.run(run()) == [2]
    assert server.done.count(("POST", "/api/v1/nodes")) == 2


def make_step(position: int, opcode: str, **fields: Any) -> Operation:
    return Operation(position, opcode, fields)


def test_nodes_that_are_measured_or_changed_are_made_again(module: Path) -> None:
    pods = make_step(1, "createPods", collectMetrics=True)
    node, pod = (Template(TEMPLATES[name]) for name in ("node", "pod"))

    assert keeps_nodes(Case("c", "w", (make_step(0, "createNodes"), pods)))
    assert keeps_nodes(Case("c", "w", (make_step(0, "createNodes"), pods, make_step(2, "churn", templatePaths=[pod]))))
    assert not keeps_nodes(Case("c", "w", (pods, make_step(2, "createNodes"))))
    assert not keeps_nodes(Case("c", "w", (make_step(0, "churn", templatePaths=[pod, node]), pods)))
    assert not keeps_nodes(Case("c", "w", (make_step(0, "updateAny", templatePath=node), pods)))
    assert not keeps_nodes(read_case(module, "small", "Small", Size("")))


def test_a_number_that_a_workload_does_not_have_is_refused(module: Path) -> None:
    with pytest.raises(CaseError, match="Small/3Nodes has no measurePods, but nodes, pods"):
        read_case(module, "small", "Small", Size("3Nodes", {"measurePods": 7}))


def test_priority_classes_are_there_before_the_case_begins(module: Path) -> None:
    server, case = Server(), read_case(module, "small", "Small", Size("3Nodes"))
    asyncio.run(Player(cast("ApiClient", server), "f0", "fairbind").prepare(case))

    assert [path for path in server.objects if "priority" in path] == [f"{CLASSES}/exam-priority-10"]


def test_pods_are_deleted_at_the_rate_that_the_case_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that takes long does not make the next one later."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    server = Server()
    server.objects = {f"/api/v1/namespaces/a/pods/p{n}": {"metadata": {"name": f"p{n}"}} for n in range(3)}
    monkeypatch.setattr("exam.steps.asyncio.sleep", note)
    player = Player(cast("ApiClient", server), "f0", "fairbind")
    asyncio.run(player._delete_selected("a", {}, 0.001))

    planned = [seconds for seconds in pauses if seconds]
    assert [round(seconds) for seconds in planned] == [1000, 2000, 3000]
    assert server.objects == {}


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
