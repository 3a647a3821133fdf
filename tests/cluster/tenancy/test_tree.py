from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.cluster.tenancy import tree as tree_module
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.cluster.tenancy.tree import MAX_CHILDREN, NO_TREE, TenantTree, TroubleReason, build_tree
from fairbind.model.hierarchy import MAX_DEPTH
from fuzz.lines import count_lines

Parents = dict[str, str | None]


def make_specs(parents: Parents, *, deleted: str = "") -> list[TenantSpec]:
    """Tenants of one letter each, or of longer names."""
    return [TenantSpec(name, parent=parent, is_deleted=name in deleted) for name, parent in parents.items()]


def find_troubles(tree: TenantTree) -> dict[str, str]:
    return {name: trouble.reason.value for name, trouble in tree.trouble_of.items()}


def test_tenants_without_parents_are_no_tree() -> None:
    assert build_tree(make_specs({"a": None, "b": None})) is NO_TREE
    assert NO_TREE.path_of("a") == "a"


def test_parents_children_and_paths() -> None:
    tree = build_tree(make_specs({"va": "vis", "research": None, "vis": "research", "nlp": "research"}))
    assert tree.parent_of == {"va": "vis", "vis": "research", "nlp": "research"}
    assert tree.children_of == {"research": ("nlp", "vis"), "vis": ("va",)}
    assert tree.inner == {"research", "vis"}
    assert [tree.path_of(name) for name in ("va", "nlp", "research")] == ["research/vis/va", "research/nlp", "research"]
    assert list(tree.list_above("va")) == ["vis", "research"]
    assert tree.trouble_of == {}


def test_a_tenant_with_users_is_an_inner_one() -> None:
    tree = build_tree([TenantSpec("a", users_label="user"), TenantSpec("b")])
    assert tree.inner == {"a"}
    assert tree.children_of == {}


def test_each_member_of_a_circle_hangs_below_the_root_with_what_is_below_it() -> None:
    tree = build_tree(make_specs({"a": "b", "b": "c", "c": "a", "under": "b", "other": "top", "top": None}))
    assert find_troubles(tree) == dict.fromkeys("abc", "Circle")
    assert tree.parent_of == {"under": "b", "other": "top"}
    assert (
        tree.trouble_of["a"].message == "the tenant would be above itself: a/c/b/a; the tenant is a child of the root"
    )


def test_a_long_circle_is_told_in_short() -> None:
    names = [f"t{n}" for n in range(20)]
    tree = build_tree(make_specs({name: names[n - 1] for n, name in enumerate(names)}))
    assert tree.trouble_of["t10"].message.startswith(
        "the tenant would be above itself: t10/.../t3/t4/t5/t6/t7/t8/t9/t10;"
    )


def test_a_parent_that_is_missing_or_being_deleted_does_not_count() -> None:
    tree = build_tree(make_specs({"a": "nowhere", "b": "gone", "gone": None, "c": "a"}, deleted="gone"))
    assert find_troubles(tree) == {"a": "MissingParent", "b": "ParentDeleted"}
    assert tree.parent_of == {"c": "a"}
    assert tree.trouble_of["a"].message.startswith("there is no valid Tenant nowhere: nowhere/a;")
    assert tree.trouble_of["b"].message.startswith("gone is being deleted: gone/b;")


def test_what_is_too_deep_hangs_below_the_root_with_its_own_subtree() -> None:
    names = "abcdefgh"
    tree = build_tree(make_specs({name: names[n - 1] if n else None for n, name in enumerate(names)}))
    assert find_troubles(tree) == {"f": "TooDeep"}
    assert tree.path_of("e") == "a/b/c/d/e"
    assert tree.path_of("h") == "f/g/h"
    assert "e" not in tree.inner
    assert tree.trouble_of["f"].message.startswith("6 levels below the root, 5 are the most: a/b/c/d/e/f;")


def test_the_oldest_children_stay_and_then_the_name_decides() -> None:
    specs = [TenantSpec(f"t{n:04}", created=float(n < 2), parent="top") for n in range(MAX_CHILDREN + 1)]
    tree = build_tree([TenantSpec("top"), *reversed(specs)])
    assert find_troubles(tree) == {"t0001": "TooMany"}
    assert len(tree.children_of["top"]) == MAX_CHILDREN
    assert tree.trouble_of["t0001"].message.startswith("top has 4999 older children, the most that count: top/t0001;")
    assert find_troubles(build_tree([TenantSpec("top"), *specs[:-1]])) == {}


@pytest.mark.parametrize(
    "find_parent",
    [lambda n, _: n - 1, lambda _n, _: 0, lambda n, _: n // 10, lambda n, count: (n + 1) % count],
    ids=["a chain", "one parent of all", "ten children each", "a circle"],
)
def test_many_tenants_take_steps_as_their_number_does(
    find_parent: Callable[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "MAX_CHILDREN", 100)

    def count_steps(count: int) -> int:
        parents = [f"t{find_parent(n, count)}" for n in range(count)]
        specs = [TenantSpec(f"t{n}", parent=parent if n else None) for n, parent in enumerate(parents)]
        return count_lines(partial(build_tree, specs))

    assert count_steps(1000) < 2.5 * count_steps(500)


NAMES = [f"t{n}" for n in range(9)]


@st.composite
def draw_specs(draw: st.DrawFn) -> list[TenantSpec]:
    parents = draw(st.fixed_dictionaries({name: st.sampled_from([None, "nowhere", *NAMES]) for name in NAMES}))
    deleted = draw(st.sets(st.sampled_from(NAMES), max_size=2))
    return [TenantSpec(name, parent=parent, is_deleted=name in deleted) for name, parent in parents.items()]


def find_expected(name: str, specs: dict[str, TenantSpec]) -> TroubleReason | None:
    """Say of one tenant, by following its parents, what is wrong first; too many levels left out."""
    parent = specs[name].parent
    if parent is not None and parent not in specs:
        return TroubleReason.MISSING_PARENT
    if parent is not None and specs[parent].is_deleted:
        return TroubleReason.PARENT_DELETED
    counting = {
        one: spec.parent
        for one, spec in specs.items()
        if spec.parent is not None and spec.parent in specs and not specs[spec.parent].is_deleted
    }
    above = counting.get(name)
    for _ in specs:
        if above == name:
            return TroubleReason.CIRCLE
        above = counting.get(above or "")
    return None


@given(draw_specs())
def test_random_parents_make_a_tree(specs: list[TenantSpec]) -> None:
    tree = build_tree(specs)
    by_name = {spec.name: spec for spec in specs}
    for name, spec in by_name.items():
        above = list(tree.list_above(name))
        assert len(above) < MAX_DEPTH
        assert name not in above
        expected = find_expected(name, by_name)
        trouble = tree.trouble_of.get(name)
        if expected is not None:
            assert trouble is not None
            assert trouble.reason == expected
        elif trouble is not None:
            assert trouble.reason == TroubleReason.TOO_DEEP
            assert trouble.message.split(": ")[1].startswith(tree.path_of(str(spec.parent)))
            assert len(list(tree.list_above(str(spec.parent)))) == MAX_DEPTH - 1
        assert tree.parent_of.get(name) == (spec.parent if trouble is None else None)
    assert {child: parent for parent, children in tree.children_of.items() for child in children} == tree.parent_of


@given(draw_specs(), st.permutations(NAMES))
def test_the_tree_does_not_depend_on_the_order(specs: list[TenantSpec], order: list[str]) -> None:
    by_name = {spec.name: spec for spec in specs}
    assert build_tree(by_name[name] for name in order) == build_tree(specs)


@pytest.mark.parametrize("reason", list(TroubleReason))
def test_reasons_are_words_of_the_api(reason: TroubleReason) -> None:
    assert reason.value.isalpha()
