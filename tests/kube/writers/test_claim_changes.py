"""What is written for a claim depends on what stands in it and in its volume by then."""

from __future__ import annotations

from typing import Any

import pytest

from fairbind.cluster.objects.volume_facts import SELECTED_NODE, ClaimFacts
from fairbind.kube.writers.claim_binder import (
    _BOUND_BY_CONTROLLER,
    _ImpossibleError,
    _name_claim,
    _select_node,
    _unname_claim,
    _unselect_node,
)

Json = dict[str, Any]
CLAIM = ClaimFacts(
    namespace="team",
    name="data",
    version="1",
    volume="",
    is_bound=False,
    is_lost=False,
    is_deleted=False,
    is_exclusive=False,
    storage_class="fast",
    owner="",
    uid="uid-data",
)
OURS = {_BOUND_BY_CONTROLLER: "yes"}


def make_volume(reference: Json | None, annotations: Json | None = None, phase: str = "Available") -> Json:
    return {"metadata": {"annotations": annotations}, "spec": {"claimRef": reference}, "status": {"phase": phase}}


def make_reference(**fields: str) -> Json:
    return {"namespace": "team", "name": "data", "uid": "uid-data", **fields}


def make_claim(node: str | None = None, volume: str = "") -> Json:
    annotations = {} if node is None else {SELECTED_NODE: node}
    return {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}}


def test_a_free_volume_is_given_and_marked_as_given_by_a_controller() -> None:
    change = _name_claim(make_volume(None), CLAIM)

    assert change is not None
    assert change["metadata"]["annotations"] == OURS
    assert change["spec"]["claimRef"].items() >= make_reference().items()


def test_a_volume_that_a_person_gave_by_name_gets_the_uid_and_no_mark() -> None:
    change = _name_claim(make_volume(make_reference(uid="")), CLAIM)

    assert change is not None
    assert change["metadata"] == {}
    assert change["spec"]["claimRef"]["uid"] == "uid-data"


def test_a_volume_that_the_claim_has_is_left_alone() -> None:
    assert _name_claim(make_volume(make_reference()), CLAIM) is None


@pytest.mark.parametrize("reference", [None, make_reference(uid="")], ids=["nobody's", "a person's"])
@pytest.mark.parametrize("phase", ["Bound", "Released", "Failed", ""])
def test_a_volume_is_given_by_its_phase(reference: Json | None, phase: str) -> None:
    """A released volume has the files of another claim, also in the moment after a person freed it."""
    with pytest.raises(_ImpossibleError, match="not free"):
        _name_claim(make_volume(reference, phase=phase), CLAIM)
    for free in ("Available", "Pending"):
        assert _name_claim(make_volume(reference, phase=free), CLAIM) is not None


@pytest.mark.parametrize("other", [{"name": "other"}, {"namespace": "other"}, {"uid": "uid-of-an-earlier-claim"}])
def test_a_volume_of_another_claim_is_not_taken(other: Json) -> None:
    with pytest.raises(_ImpossibleError, match="given to another claim"):
        _name_claim(make_volume(make_reference(**other)), CLAIM)


@pytest.mark.parametrize(
    "volume",
    [
        make_volume(make_reference()),
        make_volume(make_reference(), OURS, "Bound"),
        make_volume(make_reference(), OURS, "Released"),
        make_volume(make_reference(), OURS, "Failed"),
        make_volume(make_reference(), OURS, ""),
        make_volume(make_reference(name="other"), OURS),
        make_volume(None, OURS),
    ],
    ids=["a person's", "bound", "released", "failed", "in no phase", "another claim's", "free"],
)
def test_only_a_volume_that_we_gave_and_that_is_not_bound_is_taken_back(volume: Json) -> None:
    assert _unname_claim(volume, "team/data") is None
    for phase in ("Available", "Pending"):
        change = _unname_claim(make_volume(make_reference(), OURS, phase), "team/data")
        assert change == {"metadata": {"annotations": {_BOUND_BY_CONTROLLER: None}}, "spec": {"claimRef": None}}


def test_a_node_is_named_once_and_no_other_in_its_place() -> None:
    assert _select_node(make_claim(), "n1") == {"metadata": {"annotations": {SELECTED_NODE: "n1"}}}
    assert _select_node(make_claim("n1"), "n1") is None
    assert _select_node(make_claim(volume="v"), "n1") is None
    with pytest.raises(_ImpossibleError, match="made for the persistentvolumeclaim on n2"):
        _select_node(make_claim("n2"), "n1")


def test_our_node_is_taken_back_while_no_volume_was_made() -> None:
    assert _unselect_node(make_claim("n1"), "n1") == {"metadata": {"annotations": {SELECTED_NODE: None}}}
    assert _unselect_node(make_claim("n2"), "n1") is None
    assert _unselect_node(make_claim(), "n1") is None
    assert _unselect_node(make_claim("n1", "v"), "n1") is None
