"""Whatever a file says: a clear refusal, or Tenants that the API server accepts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairbind.cli.import_queues import format_tenants
from fairbind.cli.mechanisms.yaml_text import read_yaml, read_yaml_documents
from fairbind.cluster.objects.quantity import parse_quantity
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.importing.documents import Document
from fairbind.importing.fields import is_namespace
from fairbind.importing.systems import READERS
from fairbind.importing.tenants import make_tenants
from fairbind.model.errors import InvalidProblemError

CRD = yaml.safe_load((Path(__file__).parents[2] / "crds" / "tenants.yaml").read_text(encoding="utf-8"))
SPEC = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

ODD = st.sampled_from(
    [None, True, 0, -1, 1, 1.5, -0.0, float("nan"), 1e300, 10**400, "", "x", "-1", "5Gi", "1e9", [], {}, [1], {"a": 1}]
)
NAMES = st.sampled_from(["a", "b", "c", "pool", "root", "1e3", "yes", "a-b", "h100", "any", "x.y"])
AMOUNTS = st.sampled_from([0, 1, 2, 3, 8, "500m", "4", "1500m", "16Gi", "10G", "1e3", 2.5, 10**30])
RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "vcore"]), AMOUNTS, max_size=3)
TIMES = st.sampled_from(["30s", "1h", "1.5ms", "0"])


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def lists(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, max_size=3)


def api(group: str, versions: list[str], kinds: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    meta = st.fixed_dictionaries({"name": NAMES}, optional={"namespace": st.sampled_from(["a", "team-1", "1e3"])})
    return st.one_of(
        [
            st.fixed_dictionaries(
                {
                    "apiVersion": st.sampled_from([f"{group}/{version}" for version in versions]),
                    "kind": st.just(kind),
                    "metadata": meta,
                    "spec": spec,
                }
            )
            for kind, spec in kinds.items()
        ]
    )


QUOTA = st.fixed_dictionaries(
    {"name": st.sampled_from(["cpu", "memory", "pods"]), "nominalQuota": AMOUNTS},
    optional={"borrowingLimit": AMOUNTS, "lendingLimit": AMOUNTS},
)
FLAVOR = st.fixed_dictionaries({"name": NAMES}, optional={"resources": lists(QUOTA)})
GROUPS = lists(maybe(coveredResources=st.just(["cpu"]), flavors=lists(FLAVOR)))
SHARING = maybe(weight=AMOUNTS)
LABELS = st.dictionaries(st.sampled_from([f"label-{n}" for n in range(10)]), NAMES, max_size=10)
KUEUE = api(
    "kueue.x-k8s.io",
    ["v1beta1", "v1beta2"],
    {
        "ClusterQueue": maybe(cohort=NAMES, cohortName=NAMES, resourceGroups=GROUPS, fairSharing=SHARING),
        "Cohort": maybe(parentName=NAMES, resourceGroups=GROUPS, fairSharing=SHARING),
        "LocalQueue": maybe(clusterQueue=NAMES, fairSharing=SHARING),
        "ResourceFlavor": maybe(nodeLabels=LABELS, nodeTaints=ODD),
    },
)
WHOLE = st.sampled_from([0, 5, "7", -1000, 99999])
VOLCANO = api(
    "scheduling.volcano.sh",
    ["v1beta1"],
    {
        "Queue": maybe(
            parent=NAMES, weight=AMOUNTS, priority=WHOLE, capability=RESOURCES, deserved=RESOURCES,
            guarantee=maybe(resource=RESOURCES), reclaimable=ODD,
        )
    },
)  # fmt: skip
KAI_AMOUNTS = maybe(quota=AMOUNTS | st.just(-1), limit=AMOUNTS | st.just(-1), overQuotaWeight=AMOUNTS)
KAI = api(
    "scheduling.run.ai",
    ["v2"],
    {
        "Queue": maybe(
            parentQueue=NAMES, priority=WHOLE, reclaimMinRuntime=TIMES, preemptMinRuntime=TIMES,
            resources=maybe(cpu=KAI_AMOUNTS, gpu=KAI_AMOUNTS, memory=KAI_AMOUNTS),
        )
    },
)  # fmt: skip
LIMITS = lists(
    maybe(limit=NAMES, users=lists(NAMES), groups=lists(NAMES), maxresources=RESOURCES, maxapplications=AMOUNTS)
)


def make_siblings(queue: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(queue, max_size=2, unique_by=lambda each: each["name"].lower())


def make_yunikorn_queue(below: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Any]:
    fields = maybe(
        parent=st.booleans(),
        resources=maybe(guaranteed=RESOURCES, max=RESOURCES),
        properties=maybe(**{"priority.offset": WHOLE, "x": NAMES}),
        limits=LIMITS,
        **({} if below is None else {"queues": make_siblings(below)}),
    )
    names = st.sampled_from(["a", "b", "a-b", "Eng", "a_b", "_", "1e3", "root"])
    return st.builds(lambda name, rest: {"name": name, **rest}, names, fields)


QUEUES = make_yunikorn_queue(make_yunikorn_queue(make_yunikorn_queue()))
RULES = maybe(
    name=st.sampled_from(["tag", "fixed"]),
    value=st.sampled_from(["namespace", "root.a"]),
    parent=maybe(name=st.just("fixed"), value=NAMES),
)
PARTITION = maybe(
    name=NAMES,
    placementrules=lists(RULES),
    limits=LIMITS,
    queues=make_siblings(QUEUES),
)
YUNIKORN = maybe(partitions=st.lists(PARTITION, max_size=2))


def name_object(value: Any) -> object:
    return (
        value["kind"],
        value["metadata"].get("namespace", ""),
        value["metadata"]["name"],
    )


FILES = st.one_of(
    st.tuples(st.just("kueue"), st.lists(KUEUE, max_size=6, unique_by=name_object)),
    st.tuples(st.just("volcano"), st.lists(VOLCANO, max_size=5, unique_by=name_object)),
    st.tuples(st.just("kai"), st.lists(KAI, max_size=5, unique_by=name_object)),
    st.tuples(st.just("yunikorn"), st.lists(YUNIKORN, max_size=1)),
)


def list_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place amid a document: the object or list, and the name or number in it."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield value, name
        yield from list_places(member)


@st.composite
def draw_files(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """Draw a system and its documents, in some of which something odd stands."""
    system, values = draw(FILES)
    whole = [copy.deepcopy(values)]  # an object of a strategy may stand in several places
    if draw(st.booleans()):
        for _ in range(draw(st.integers(1, 2))):
            container, name = draw(st.sampled_from([*list_places(whole)]))
            container[name] = copy.deepcopy(draw(ODD))
    documents: Any = whole[0]
    return system, documents if isinstance(documents, list) else [documents]


def check(spec: Any, schema: Any, path: str) -> None:
    """Raise where a value has fields that the schema does not have; those the API server refuses or drops."""
    if isinstance(spec, dict) and "properties" in schema:
        assert spec.keys() <= schema["properties"].keys(), path
        for name, value in spec.items():
            check(value, schema["properties"][name], f"{path}.{name}")
    elif isinstance(spec, list):
        for value in spec:
            check(value, schema["items"], f"{path}[]")


def convert(system: str, values: list[Any]) -> tuple[list[dict[str, Any]], list[str]] | str:
    """Return Tenants and notes, or the refusal."""
    documents = [Document(f"file, document {n}", value) for n, value in enumerate(values, 1)]
    try:
        reading = READERS[system](documents, read_yaml)
        tenants = make_tenants(reading)
    except InvalidProblemError as error:
        return str(error)
    return tenants, [str(note) for note in reading.notes]


@given(draw_files())
def test_any_documents_are_refused_clearly_or_become_valid_tenants(found: tuple[str, list[Any]]) -> None:
    outcome = convert(*found)
    if isinstance(outcome, str):
        assert outcome.startswith(("file, document ", "FILE: must hold "))
        assert "\n" not in outcome
        return
    tenants, notes = outcome
    assert all("\n" not in note for note in notes)
    assert read_yaml_documents(format_tenants(tenants) or "---") == tenants
    names = [tenant["metadata"]["name"] for tenant in tenants]
    assert len(set(names)) == len(names)
    for place, tenant in enumerate(tenants):
        check_tenant(tenant, names[:place])


def check_tenant(tenant: dict[str, Any], before: list[str]) -> None:
    spec = tenant["spec"]
    parse_tenant(tenant)
    jsonschema.validate(spec, SPEC)
    check(spec, SPEC, "spec")
    assert spec.get("parent") in (None, *before)
    assert all(is_namespace(name) for name in spec.get("namespaces", ()))
    assert Fraction(1, 1000) <= parse_quantity(str(spec.get("weight", 1))) <= 1000
    for entry in (*spec.get("guarantee", ()), *spec.get("limit", ())):
        assert all(parse_quantity(amount) >= 0 for amount in entry["resources"].values())
