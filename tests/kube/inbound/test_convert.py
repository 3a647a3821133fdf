from __future__ import annotations

from fairbind.kube import convert
from kube.inbound.builders import Json, make_pod, read_pod


def make_waiting(name: str, message: str) -> Json:
    pod = make_pod(name)
    pod["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}
    return pod


def test_equal_messages_are_one_object() -> None:
    one, other = (read_pod(make_waiting(name, "0/3 nodes are available.")) for name in "ab")
    assert one.scheduled_message == "0/3 nodes are available."
    assert one.scheduled_message is other.scheduled_message


def test_messages_whose_numbers_change_for_ever_are_not_kept_for_ever() -> None:
    for number in range(convert.MAX_SHARED_MESSAGES + 10):
        read_pod(make_waiting("p", f"0/{number} nodes are available."))
    assert convert._share.cache_info().currsize == convert.MAX_SHARED_MESSAGES
