"""A snapshot without the names that people gave: structure, amounts and times stay, and so do the decisions.

Ties are decided by names: of nodes, namespaces, pods and tenants, also of names put together ("namespace/pod",
"ns/namespace"). So a name is not replaced as a whole. It is divided at its separators, and each word is replaced by one
that stands in the same place of the alphabet. The new names are then in the order of the old ones, however they are put
together. The same word gets the same new word everywhere, so labels, selectors, taints and tolerations meet as before.

What stays: names of resources and of device classes, keys of labels and taints that belong to Kubernetes, the names of
Kubernetes' own namespaces and schedulers, and whole numbers with which a selector compares. UIDs are numbered in their
order; so only `two-choices-drfh`, which draws by UID, may choose another of two nodes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from fairbind.cluster.objects.convert import DEFAULT_SCHEDULER
from fairbind.what_if.listed_objects import DEFAULT_SCHEDULER_NAME, ListedObjects
from fairbind.what_if.snapshot_file import describe_snapshot, parse_snapshot

FIXED_WORDS: Final = ("kube", "lease", "node", "ns", "public", "system")
"""Words of Kubernetes' own namespaces, and of the names of tenants without an object, in their order."""
GAP_WORDS: Final = ("a", "l", "m", "nq", "p", "r", "t")
"""New words begin with these: below the first fixed word, between the first two, and so on."""
DIGITS: Final = 6
WELL_KNOWN: Final = re.compile(r"([a-z0-9.-]+\.)?(kubernetes\.io|(x-)?k8s\.io|fairbind\.io)/.*|metadata\.name")
COMPARISONS: Final = frozenset({"Gt", "Lt"})
ANY_ADDRESSES: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - nothing listens here

KEPT_TEXTS: Final = frozenset({
    "kind", "time", "operator", "effect", "phase", "status", "type", "reason", "creationTimestamp",
    "deletionTimestamp", "startTime", "protocol", "restartPolicy", "whenUnsatisfiable", "policy",
    "unclaimedNamespaces", "serverClassTolerance", "weight", "seed", "alpha", "volumeBindingMode",
    "volumeMode", "maximumVolumeSize", "resource", "resourceName", "extendedResourceName", "request",
    "mode", "most", "fit", "lending",
})  # fmt: skip
"""Texts that name nothing. A field that is in no list here is replaced, so a new one cannot tell a name by mistake."""
KEPT_PARTS: Final = frozenset({
    "requests", "limits", "overhead", "allocatable", "allocatedResources", "resourceWeights", "fairnessResources",
    "accessModes", "capacity", "counters", "podFixed", "resources", "minResources",
})  # fmt: skip
"""Amounts by resource, and lists of resources."""
LABEL_MAPS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
KEPT_ANNOTATIONS: Final = (
    "fairbind.io/gang", "fairbind.io/gang-after-start", "kueue.x-k8s.io/pod-group-total-count",
    "leaderworkerset.sigs.k8s.io/size",
)  # fmt: skip
"""Texts of annotations that are numbers and settings of groups of pods."""
KEPT_NAMES: Final = ("schedulingPolicies", "deviceClasses")
"""Of a policy the API server takes one name only, and names of device classes are in names of resources."""
SCHEDULER_NAMES: Final = ("schedulerName", "otherSchedulerNames")
KEYS: Final = frozenset({"key", "topologyKey", "label"})
SCHEDULERS: Final = frozenset({DEFAULT_SCHEDULER, DEFAULT_SCHEDULER_NAME})

_WORD = re.compile(r"[A-Za-z0-9]+")


def anonymise(listed: ListedObjects) -> ListedObjects:
    """Return the objects under other names."""
    document = describe_snapshot(listed)
    return parse_snapshot(_Renaming(document).rename(document))


class _Renaming:
    """New names for one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        words: set[str] = set()
        uids: set[str] = set()
        self._compared: set[str] = set()
        self._kept = {document["schedulerName"], *document.get("otherSchedulerNames", ()), *SCHEDULERS}

        def note_name(name: str) -> str:
            words.update(_WORD.findall(name))
            return name

        def note_uid(uid: str) -> str:
            uids.add(uid)
            return uid

        for expression in _find_expressions(document):
            if expression.get("operator") in COMPARISONS:
                self._compared.add(expression.get("key", ""))
        self._words: dict[str, str] = {}
        self._uids: dict[str, str] = {}
        self._replace_name: Callable[[str], str] = note_name
        self._replace_uid: Callable[[str], str] = note_uid
        self._walk(document, "")
        self._words = number_words(words)
        self._uids = {uid: f"uid-{number:0{DIGITS}}" for number, uid in enumerate(sorted(uids))}
        self._replace_name = lambda name: _WORD.sub(lambda word: self._words[word.group()], name)
        self._replace_uid = self._uids.__getitem__

    def rename(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document with new names."""
        renamed: dict[str, Any] = self._walk(document, "")
        for field in KEPT_NAMES:
            for old, new in zip(document.get(field, ()), renamed.get(field, ()), strict=True):
                new["metadata"]["name"] = old["metadata"]["name"]
        return renamed

    def _walk(self, value: Any, field: str) -> Any:
        if isinstance(value, dict):
            if field in KEPT_PARTS:
                return value
            if field in LABEL_MAPS:
                return {self._rename_key(key): self._rename_value(text, key) for key, text in value.items()}
            if field == "minTaskMember":
                return {self._replace_name(role): least for role, least in value.items()}
            return {name: self._walk_member(part, name, value) for name, part in value.items()}
        if isinstance(value, list):
            return value if field in KEPT_PARTS else [self._walk(part, field) for part in value]
        return self._rename_text(value, field) if isinstance(value, str) else value

    def _walk_member(self, part: Any, field: str, owner: Mapping[str, Any]) -> Any:
        if field == "values":
            return [self._rename_value(text, owner.get("key", "")) for text in part]
        is_label = field == "value" and isinstance(part, str)  # a PriorityClass has a number there
        return self._rename_value(part, owner.get("key", "")) if is_label else self._walk(part, field)

    def _rename_text(self, text: str, field: str) -> str:
        is_kept = text in self._kept and field in SCHEDULER_NAMES
        if is_kept or field in KEPT_TEXTS or field in KEPT_ANNOTATIONS:
            return text
        if field == "uid":
            return self._replace_uid(text)
        if field == "fault":
            return "a field that could not be read"
        if field == "hostIP" and text in ANY_ADDRESSES:
            return text
        return self._rename_key(text) if field in KEYS or field.endswith("-topology") else self._replace_name(text)

    def _rename_key(self, key: str) -> str:
        return key if WELL_KNOWN.fullmatch(key) else self._replace_name(key)

    def _rename_value(self, text: str, key: str) -> str:
        return text if key in self._compared else self._replace_name(text)


def _find_expressions(value: Any) -> Iterable[Mapping[str, Any]]:
    """Yield all expressions of selectors."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name in {"matchExpressions", "matchFields"}:
                yield from part
            else:
                yield from _find_expressions(part)
    elif isinstance(value, list):
        for part in value:
            yield from _find_expressions(part)


def number_words(words: Iterable[str]) -> dict[str, str]:
    """Return a new word for each, in the same order; the fixed words stay.

    >>> number_words({"ada", "gpu", "kube", "zoe"})
    {'ada': 'a000000', 'gpu': 'a000001', 'kube': 'kube', 'zoe': 't000003'}
    """
    return {
        word: word if word in FIXED_WORDS else f"{GAP_WORDS[bisect_right(FIXED_WORDS, word)]}{number:0{DIGITS}}"
        for number, word in enumerate(sorted(set(words)))
    }
