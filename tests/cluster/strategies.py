"""Random nodes and pods from a small world, so that things meet: few labels, few taints, few resources."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cluster.builders import SCHEDULER, Json, make_pod

KEYS = ("disk", "zone", "cores")
VALUES = ("ssd", "hdd", "1", "2", "16", "")
TAINT_KEYS = ("gpu", "old")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
NODE_NAMES = ("a", "b", "c", "d")
NAMESPACES = ("team", "shop", "kube-system")
APPS = ("web", "db")
IMAGES = ("registry.example/web:1", "db:latest", "db")

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=3)
taints = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(TAINT_KEYS), "value": st.sampled_from(("", "x")), "effect": st.sampled_from(EFFECTS)}
    ),
    max_size=2,
)
expressions = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "operator": st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd")),
        "values": st.lists(st.sampled_from(VALUES), max_size=2),
    }
)
fields = st.fixed_dictionaries(
    {
        "key": st.sampled_from(("metadata.name", "metadata.uid")),
        "operator": st.sampled_from(("In", "NotIn")),
        "values": st.lists(st.sampled_from(NODE_NAMES), max_size=2),
    }
)
terms = st.fixed_dictionaries(
    {}, optional={"matchExpressions": st.lists(expressions, max_size=2), "matchFields": st.lists(fields, max_size=1)}
)
tolerations = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(TAINT_KEYS),
            "operator": st.sampled_from(("Equal", "Exists", "Gt")),
            "value": st.sampled_from(("", "x")),
            "effect": st.sampled_from(EFFECTS),
        },
    ),
    max_size=2,
)


@st.composite
def affinities(draw: st.DrawFn) -> Json:
    node: Json = {}
    if draw(st.booleans()):
        required = {"nodeSelectorTerms": draw(st.lists(terms, max_size=2))}
        node["requiredDuringSchedulingIgnoredDuringExecution"] = required
    if draw(st.booleans()):
        wish = st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": terms})
        node["preferredDuringSchedulingIgnoredDuringExecution"] = draw(st.lists(wish, max_size=2))
    return {"nodeAffinity": node}


constraints: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=1),
        "affinity": affinities(),
        "tolerations": tolerations,
    },
)
allocatables = st.fixed_dictionaries(
    {"cpu": st.sampled_from(("1", "2", "4", "-1", "1E")), "pods": st.sampled_from(("2", "110"))},
    optional={"memory": st.sampled_from(("1Gi", "4Gi")), "gpu.io/x": st.sampled_from(("0", "1", "nonsense"))},
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(("0", "100m", "1", "1E")),
        "memory": st.sampled_from(("1Mi", "1Gi")),
        "gpu.io/x": st.just("1"),
    },
)
repelling_terms = st.fixed_dictionaries(
    {"topologyKey": st.just("zone"), "labelSelector": st.sampled_from([{"matchLabels": {"app": app}} for app in APPS])},
    optional={"namespaceSelector": st.sampled_from(({}, {"matchLabels": {"env": "prod"}}))},
)

spread_constraints = st.fixed_dictionaries(
    {
        "topologyKey": st.sampled_from(("zone", "disk")),
        "maxSkew": st.integers(1, 2),
        "whenUnsatisfiable": st.sampled_from(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": st.sampled_from([{}, *({"matchLabels": {"app": app}} for app in APPS)]),
    },
    optional={
        "minDomains": st.integers(1, 3),
        "nodeAffinityPolicy": st.sampled_from(("Honor", "Ignore")),
        "nodeTaintsPolicy": st.sampled_from(("Honor", "Ignore")),
        "matchLabelKeys": st.just(["app"]),
    },
)

images = st.dictionaries(st.sampled_from(IMAGES[:2]), st.sampled_from((1, 10**9, 10**10)), max_size=2)
groups = st.sampled_from(({}, {}, {"scheduling.x-k8s.io/pod-group": "g"}))


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """A pod of ours or of somebody else, waiting or bound; the caller gives it a name."""
    spec = draw(constraints)
    node = draw(st.none() | st.sampled_from(NODE_NAMES))
    for kind in ("podAffinity", "podAntiAffinity"):
        if draw(st.integers(0, 3)) == 0:
            terms = {"requiredDuringSchedulingIgnoredDuringExecution": [draw(repelling_terms)]}
            spec["affinity"] = {**spec.get("affinity", {}), kind: terms}
    if draw(st.integers(0, 3)) == 0:
        spec["topologySpreadConstraints"] = draw(st.lists(spread_constraints, min_size=1, max_size=2))
    if node is None and draw(st.integers(0, 3)) == 0:
        spec["schedulingGates"] = [{"name": "g"}]
    pod = make_pod(
        namespace=draw(st.sampled_from(NAMESPACES)),
        requests=draw(requests),
        scheduler=draw(st.sampled_from((SCHEDULER, SCHEDULER, "another"))),
        node=node,
        labels={"app": draw(st.sampled_from(APPS)), **draw(groups)},
        priority=draw(st.integers(0, 1)),
        **spec,
    )
    if draw(st.integers(0, 3)) == 0:
        pod["spec"]["containers"][0]["ports"] = [{"hostPort": 80}]
    if draw(st.booleans()):
        pod["spec"]["containers"][0]["image"] = draw(st.sampled_from(IMAGES))
    return pod
