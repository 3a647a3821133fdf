"""Images that nodes have already: what they are worth, and when a class of pods depends on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.builders import Cluster, Json, make_node, make_pod, read_node, read_pod
from cluster.counting import count_calls
from cluster.filters.test_preferences_about_pods import prefer
from cluster.filters.test_topology import SMALL, count_nodes
from fairbind.cluster.classes import image_changes
from fairbind.cluster.classes.snapshot import SnapshotBuilder
from fairbind.cluster.filters.image_locality import ImageLocality
from fairbind.cluster.filters.node_columns import NodeColumns
from fairbind.cluster.objects.image_facts import (
    MAX_IMAGES,
    MAX_NAME,
    MAX_NODE_NAMES,
    NO_IMAGES,
    ImageUse,
    NodeImages,
)
from fairbind.model import PolicySettings
from fairbind.scheduling import run_cycle

MIB = 1024 * 1024
WEB = "registry.example/web:1"
NAMES = ("a:1", "b:1", "c:1")
SIZES = (0, 23 * MIB, 24 * MIB, 500 * MIB, 3_333_333_333, 40_000 * MIB)

listed = st.lists(st.sampled_from(NAMES), unique=True).flatmap(
    lambda names: st.tuples(*(st.tuples(st.just((name,)), st.sampled_from(SIZES)) for name in names))
)
lists = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.none() | listed), min_size=1, max_size=30)
uses = st.lists(st.sampled_from((*NAMES, "none:1")), min_size=1, max_size=4)


def score_in_plain_words(use: ImageUse, images: NodeImages, all_images: list[NodeImages]) -> int:
    total = 0
    for name in use.names:
        for (listed_name,), size in images:
            if listed_name == name:
                having = sum(any((name,) == names for names, _ in each) for each in all_images)
                total += int(float(size) * (having / len(all_images)))
    most = 1000 * MIB * use.sources
    return 100 * (min(max(total, 23 * MIB), most) - 23 * MIB) // (most - 23 * MIB)


@given(lists, uses, st.integers(0, 2))
def test_scores_are_what_they_are_in_plain_words_whatever_came_before(
    history: list[tuple[str, NodeImages | None]], used: list[str], more: int
) -> None:
    locality, nodes, use = ImageLocality(), dict[str, NodeImages](), ImageUse(len(used) + more, tuple(sorted(used)))
    index: dict[str, int] = {}
    held = []  # as verdicts hold answers
    for node, images in history:
        locality.set_images(node, nodes.get(node, ()), images or ())
        if images is None:
            nodes.pop(node, None)
        else:
            nodes[node] = images
        if index.keys() != nodes.keys():
            index = {name: number for number, name in enumerate(nodes)}
        if nodes:
            expected = [score_in_plain_words(use, images, list(nodes.values())) for images in nodes.values()]
            held.append(locality.compute_scores(use, index))
            assert held[-1].tolist() == expected
    assert {name for name in NAMES if name in locality} == {
        name for images in nodes.values() for names, _ in images for name in names
    }


def test_who_uses_the_same_images_has_the_same_scores_until_something_changes() -> None:
    locality, index = ImageLocality(), {"a": 0, "b": 1}
    one, same, other = ImageUse(1, NAMES[:1]), ImageUse(1, NAMES[:1]), ImageUse(2, NAMES[:1])
    has: NodeImages = (((NAMES[0],), 5000 * MIB),)
    locality.set_images("a", (), has)
    score_k = locality.compute_scores(one, index)

    assert locality.compute_scores(same, index) is score_k
    assert not score_k.flags.writeable
    assert locality.compute_scores(other, index) is not score_k
    assert locality.compute_scores(one, {"b": 0, "a": 1}).tolist() == [0, 100]
    locality.set_images("b", (), has)
    assert locality.compute_scores(one, index).tolist() == [100, 100]


def use(pod: Json, *images: str, kind: str = "containers") -> Json:
    """Let a pod use these images, in the place of others; the first container of a kind asks for what it asked for."""
    (first, *_), others = pod["spec"].get(kind) or [{}], [{"name": f"c{n}"} for n in range(1, len(images))]
    pod["spec"][kind] = [
        {**container, "image": image}
        for container, image in zip([{"name": "c0", **first}, *others], images, strict=True)
    ]
    return pod


def make_nodes(**images: dict[str, int]) -> Cluster:
    cluster = Cluster()
    cluster.add_nodes(*(make_node(name, images=has) for name, has in images.items()))
    return cluster


def find_nodes(cluster: Cluster) -> dict[str, int]:
    """Where a cycle would place the pods that wait, which wait on."""
    return count_nodes(run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0))


def find_preference(cluster: Cluster, pod: Json) -> list[int] | None:
    cluster.add_pods(pod)
    preference_k = cluster.get_class(pod["metadata"]["uid"]).placement.preference_k
    return None if preference_k is None else preference_k.tolist()


def test_a_pod_goes_where_its_image_is() -> None:
    cluster = make_nodes(a={}, b={}, c={WEB: 3000 * MIB})
    cluster.add_pods(use(make_pod("x", requests=SMALL), WEB), use(make_pod("y", requests=SMALL), "other:1"))

    assert find_nodes(cluster) == {"a": 1, "c": 1}


@pytest.mark.parametrize(
    ("size", "scores"),
    [
        (2000, [100, 0]),  # half of the nodes have it: half of its size
        (1976, [98, 0]),
        (46, None),  # 23 MiB is the least that counts
        (65, None),
        (66, [1, 0]),
    ],
)
def test_an_image_counts_with_its_size_and_the_part_of_the_nodes_that_have_it(
    size: int, scores: list[int] | None
) -> None:
    assert find_preference(make_nodes(a={WEB: size * MIB}, b={}), use(make_pod("x"), WEB)) == scores


def test_all_images_of_a_pod_count_and_each_use_of_one() -> None:
    cluster = make_nodes(a={WEB: 1000 * MIB, "db:2": 500 * MIB}, b={})
    pod = use(use(make_pod("x"), WEB, WEB), "db:2", "unknown", kind="initContainers")
    pod["spec"]["volumes"] = [{"name": "v", "image": {"reference": "db:2"}}, {"name": "w", "emptyDir": {}}]

    # 500 + 500 + 250 + 250 MiB of 5,000, and both bounds are lower by 23.
    assert find_preference(cluster, pod) == [100 * (1500 - 23) // (5000 - 23), 0]


@pytest.mark.parametrize(
    ("written", "on_node", "is_same"),
    [
        ("web", "web:latest", True),
        ("registry.example:5000/web", "registry.example:5000/web:latest", True),
        ("registry.example:5000/web", "registry.example:5000/web", False),
        ("web:1", "docker.io/library/web:1", False),
        ("web@sha256:1", "web@sha256:1", True),
    ],
)
def test_names_are_compared_as_they_are_written_but_for_the_tag(written: str, on_node: str, *, is_same: bool) -> None:
    cluster = make_nodes(a={on_node: 2000 * MIB}, b={})

    assert (find_preference(cluster, use(make_pod("x"), written)) is not None) == is_same


def test_images_are_weighed_together_with_wishes_about_other_pods() -> None:
    """A node with the image has 100 points, one without the pods to keep away from 200."""
    cluster = Cluster()
    for name, images in ("a", {WEB: 5000 * MIB}), ("b", {}), ("c", {}):
        cluster.add_nodes(make_node(name, labels={"kubernetes.io/hostname": name}, images=images))
    placed = [make_pod(name, node=name, labels={"app": "web"}, requests=SMALL) for name in "ab"]
    away = use(make_pod("x", requests=SMALL, **prefer("podAntiAffinity", key="kubernetes.io/hostname")), WEB)
    cluster.add_pods(*placed, away)
    wishes = cluster.get_class("uid-x").preferences
    assert wishes is not None
    assert [wish.weight for wish in wishes.preferences] == [2, 1]
    assert find_nodes(cluster) == {"c": 1}
    cluster.delete_pod(placed[0])

    assert find_nodes(cluster) == {"a": 1}


def test_pods_that_differ_in_images_that_no_node_has_are_one_class() -> None:
    cluster = make_nodes(a={WEB: 5000 * MIB}, b={})
    cluster.add_pods(*(use(make_pod(f"p{n}", requests=SMALL), f"own:{n}") for n in range(9)))
    (before,) = cluster.cache.build_snapshot().task_classes
    cluster.add_nodes(make_node("b", images={"own:3": 2000 * MIB}))
    classes = cluster.cache.build_snapshot().task_classes

    assert sorted(len(each.tasks) for each in classes) == [1, 8]
    assert [each.placement is before.placement for each in classes if len(each.tasks) == 8] == [True]
    assert find_preference(cluster, use(make_pod("p3", requests=SMALL), "own:3")) == [0, 100]
    cluster.cache.check_consistent()
    cluster.add_nodes(make_node("b"))
    assert len(cluster.cache.build_snapshot().task_classes) == 1
    cluster.cache.check_consistent()


def find_wishing(cluster: Cluster) -> list[str]:
    classes = cluster.cache.build_snapshot().task_classes
    return sorted(task.uid for each in classes if each.placement.preference_k is not None for task in each.tasks)


def add_label(pod: Json) -> Json:
    pod["metadata"]["labels"] = {"app": "web"}
    return pod


def make_users(count: int) -> list[Json]:
    """Pods of another class each that use one image, of which the last one's turn comes first."""
    return [
        use(make_pod(f"p{n}", requests={"cpu": f"{n + 1}m"}, created=f"2026-01-01T00:00:{50 - n}Z"), WEB)
        for n in range(count)
    ]


def test_thousands_of_classes_go_over_to_an_image_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_changes, "MAX_CHANGED_QUEUES", 2)
    cluster = make_nodes(a={"other:1": 5000 * MIB}, b={})
    pods = make_users(6)
    cluster.add_pods(*pods, use(make_pod("twin", requests={"cpu": "5m"}), WEB))
    cluster.cache.build_snapshot()
    cluster.add_nodes(make_node("b", images={WEB: 5000 * MIB}))

    assert find_wishing(cluster) == ["uid-p4", "uid-twin"], "half of a part, as they had to be put in turn"
    cluster.delete_pod(pods[3])
    assert find_wishing(cluster) == ["uid-p2", "uid-p4", "uid-p5", "uid-twin"]
    cluster.cache.check_consistent()
    assert find_wishing(cluster) == ["uid-p0", "uid-p1", "uid-p2", "uid-p4", "uid-p5", "uid-twin"]


def test_a_queue_that_is_to_go_over_goes_over_also_under_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_changes, "MAX_CHANGED_QUEUES", 3)
    cluster = Cluster()
    cluster.add_nodes(make_node("a", labels={"host": "a"}), make_node("b"), make_node("c"))
    cluster.add_pods(*(add_label(pod) for pod in make_users(4)))
    cluster.cache.build_snapshot()
    cluster.add_nodes(make_node("b", images={WEB: 5000 * MIB}))
    assert find_wishing(cluster) == ["uid-p2", "uid-p3"]
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "web"}}}
    repelling = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster.add_pods(make_pod("there", node="a", phase="Running", affinity=repelling))

    assert find_wishing(cluster) == ["uid-p0", "uid-p1", "uid-p2", "uid-p3"]
    assert {key.selected_by for key in cluster.cache.state.queues.by_key} != {frozenset()}
    cluster.cache.check_consistent()


def test_at_a_start_all_images_count_at_once_also_where_pods_come_before_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_changes, "MAX_CHANGED_QUEUES", 2)
    cluster = Cluster()
    cluster.add_pods(*make_users(5))
    cluster.add_nodes(make_node("a", images={"other:1": 5000 * MIB}), make_node("b", images={WEB: 5000 * MIB}))

    assert len(find_wishing(cluster)) == 5


def test_a_list_of_images_wakes_no_cycle_and_counts_in_the_next_one() -> None:
    cluster = make_nodes(a={}, b={})
    cluster.add_pods(use(make_pod("x", requests=SMALL), WEB))
    before, changes = cluster.cache.build_snapshot(), cluster.changes
    cluster.add_nodes(make_node("b", images={"other:1": 5000 * MIB}))
    assert cluster.cache.build_snapshot().task_classes[0] is before.task_classes[0]
    cluster.add_nodes(make_node("b", images={WEB: 5000 * MIB}))

    assert cluster.changes == changes
    assert find_nodes(cluster) == {"b": 1}
    cluster.add_nodes(make_node("a", images={WEB: 5000 * MIB}), make_node("b"))
    assert find_nodes(cluster) == {"a": 1}
    cluster.cache.check_consistent()


@pytest.mark.parametrize("spec", [{}, prefer("podAffinity")], ids=["by itself", "with other wishes"])
def test_a_change_that_moves_no_score_moves_no_class(spec: Json) -> None:
    cluster = make_nodes(a={WEB: 5000 * MIB}, b={})
    cluster.add_pods(use(make_pod("x", requests=SMALL, **spec), WEB))
    before = cluster.cache.build_snapshot().task_classes[0]
    cluster.add_nodes(make_node("a", images={WEB: 5000 * MIB + 1}))

    assert cluster.cache.build_snapshot().task_classes[0] is before


def test_who_has_no_choice_or_a_place_keeps_no_images() -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]
    pinned = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}

    assert read_pod(use(make_pod("x"), WEB)).images == ImageUse(1, (WEB,))
    assert read_pod(use(make_pod("x", affinity=pinned), WEB)).images is NO_IMAGES
    assert read_pod(use(make_pod("x", node="a"), WEB)).images is NO_IMAGES


def test_of_very_many_images_the_first_count() -> None:
    images = read_pod(use(make_pod("x"), *(f"i{n:03}:1" for n in range(100)))).images

    assert (images.sources, len(images.names), images.names[-1]) == (100, MAX_IMAGES, f"i{MAX_IMAGES - 1:03}:1")
    assert read_pod(use(make_pod("x"), "i" * (MAX_NAME + 1), "")).images is NO_IMAGES
    listed = read_node(
        make_node(images={"i" * (MAX_NAME + 1): 9, **{f"i{n}:1": 9 for n in range(2 * MAX_NODE_NAMES)}})
    ).images
    assert [names for names, _ in listed] == [(f"i{n}:1",) for n in range(MAX_NODE_NAMES)]


def test_nodes_share_what_their_lists_have_in_common_and_make_sense_of_odd_ones() -> None:
    one, other = (read_node(make_node(name, images={WEB: 7, "b:1": 8})) for name in "ab")
    assert one.images[0] is other.images[0]
    odd = make_node("c")
    sized: list[Json] = [{"sizeBytes": 3}, {"names": ["a:1"], "sizeBytes": -3}, {"names": ["b:1"]}]
    odd["status"]["images"] = sized

    assert read_node(odd).images == ((("a:1",), 0), (("b:1",), 0))


def test_the_images_of_a_waiting_pod_may_be_changed() -> None:
    cluster = make_nodes(a={WEB: 5000 * MIB}, b={"other:1": 5000 * MIB})
    pod = use(make_pod("x", requests=SMALL), WEB)
    cluster.add_pods(pod)
    assert find_nodes(cluster) == {"a": 1}
    cluster.change_pod(pod, lambda changed: use(changed, "other:1"))

    assert find_nodes(cluster) == {"b": 1}
    cluster.add_nodes(make_node("a", images={"other:1": 5000 * MIB}), make_node("b"))
    assert find_nodes(cluster) == {"a": 1}
    cluster.cache.check_consistent()
    cluster.delete_pod(pod)
    assert cluster.find_class("uid-x") is None


def test_a_node_takes_its_images_along_and_may_have_none_at_first() -> None:
    cluster = make_nodes(a={WEB: 5000 * MIB}, b={}, c={})
    cluster.add_pods(use(make_pod("x", requests=SMALL), WEB), use(make_pod("y", requests=SMALL), WEB, "own:1"))
    assert find_nodes(cluster) == {"a": 2}
    cluster.add_nodes(make_node("c", images={WEB: 5000 * MIB}))
    assert find_preference(cluster, use(make_pod("x", requests=SMALL), WEB)) == [100, 0, 100]
    cluster.add_nodes(make_node("a"))
    assert find_nodes(cluster) == {"c": 2}
    cluster.cache.nodes.delete(read_node(make_node("c")))

    assert cluster.get_class("uid-x") is cluster.get_class("uid-y")
    cluster.delete_pod(make_pod("y"))
    cluster.add_nodes(make_node("b", images={"own:1": 5000 * MIB}))
    assert cluster.get_class("uid-x").placement.preference_k is None
    cluster.cache.check_consistent()


def test_a_list_of_images_looks_at_those_classes_only_that_use_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"i{n}:1" for n in range(20)]
    cluster = make_nodes(a=dict.fromkeys(names, 5000 * MIB), b={})
    cluster.add_pods(*(use(make_pod(name, requests=SMALL), name) for name in names))
    cluster.cache.build_snapshot()
    counts = count_calls(
        monkeypatch,
        (ImageLocality, "compute_scores"),
        (SnapshotBuilder, "_build_task_class"),
        (NodeColumns, "__init__"),
    )
    cluster.add_nodes(make_node("b", images={"other:1": 9, names[3]: 5000 * MIB, names[7]: 5000 * MIB}))
    cluster.cache.build_snapshot()

    assert counts == {"compute_scores": 2, "_build_task_class": 2}
