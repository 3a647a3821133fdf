"""The attacks: what somebody makes or sends, and what he repeats while a quiet tenant is timed.

Each is a generator that makes what it needs, yields what is to be repeated (nothing, or a function), and takes all
of it away again. Numbers are those of the whole form; `Size.of` makes them small.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import itertools
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import urllib3

from adversary.stage import ATTACKER, PLACED
from adversary.storage import (
    limit_slots,
    make_bound,
    make_claiming_pod,
    make_classes,
    make_unbound,
    remove_storage,
)
from e2e.api import ApiError, call_many
from e2e.objects import make_pod
from fairbind.cluster.objects.budget import MAX_TOLERATIONS
from localplane.certificates import Authority

if TYPE_CHECKING:
    from adversary.stage import Stage
    from localplane.client import Json

Repeated = Callable[[], object] | None
HUGE = {"cpu": "1000", "memory": "1Gi"}
"""No node has that: such a pod waits for ever."""
SMALL = {"cpu": "100m", "memory": "64Mi"}
WEBHOOK = "attacker.example.com"
PAGE_SECONDS = 60.0
ELSEWHERE = ("127.0.0.2", 0)
"""From where strangers connect: another pod has another address than Prometheus and the kubelet."""


@dataclass(frozen=True, slots=True)
class Attack:
    """row: its number in docs/reliability/adversary.md. arguments: what the operator is started with.

    fits: whether its waiting pods fit on nodes, so that kube-scheduler asks about them in extender mode.
    """

    row: str
    name: str
    apply: Callable[[Stage], AbstractContextManager[Repeated]]
    arguments: tuple[str, ...] = ()
    fits: bool = False


ATTACKS: list[Attack] = []


def attack(
    row: str, name: str, *arguments: str, fits: bool = False
) -> Callable[[Callable[[Stage], Iterator[Repeated]]], None]:
    """Register a generator as an attack."""

    def register(apply: Callable[[Stage], Iterator[Repeated]]) -> None:
        ATTACKS.append(Attack(row, name, contextlib.contextmanager(apply), arguments, fits))

    return register


def with_affinity(**node_affinity: Any) -> Json:
    """Return a pod that waits for ever and wants nodes so and so."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": node_affinity["terms"]}}
    return make_pod(HUGE, affinity={"nodeAffinity": required})


def touch_pod(stage: Stage, namespace: str, pod: Json, field: str = "annotations") -> Callable[[], object]:
    """Return what changes a pod a little each time, so that what was computed of it is stale."""
    numbers = itertools.count()
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    return lambda: stage.api.patch(path, {"metadata": {field: {"turn": str(next(numbers))}}})


def remove_all(stage: Stage) -> None:
    """Delete the pods of both of the attacker's namespaces."""
    for namespace in (ATTACKER, PLACED):
        stage.remove_pods(namespace)


@attack("1", "one pod with 15,000 matchFields terms, changed again and again")
def many_terms(stage: Stage) -> Iterator[Repeated]:
    """Each term names one node that is not there."""
    count = stage.size.of(15_000)
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"x{number}"]}]}
        for number in range(count)
    ]
    pod = with_affinity(terms=terms)
    stage.make_pods(ATTACKER, [pod])
    yield touch_pod(stage, ATTACKER, pod)
    stage.remove_pods(ATTACKER)


@attack("1", "one pod with NotIn of 120,000 values, changed again and again")
def many_values(stage: Stage) -> Iterator[Repeated]:
    """About a mebibyte of them."""
    values = [f"{number:x}" for number in range(stage.size.of(120_000))]
    pod = with_affinity(terms=[{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": values}]}])
    stage.make_pods(ATTACKER, [pod])
    yield touch_pod(stage, ATTACKER, pod)
    stage.remove_pods(ATTACKER)


@attack("2", "one placed pod with 2,000 anti-affinity terms across namespaces, beside 3,000 waiting pods")
def placed_terms(stage: Stage) -> Iterator[Repeated]:
    """It is placed by its own author, so no scheduler has looked at it."""
    terms = [
        {
            "topologyKey": "kubernetes.io/hostname",
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": [{"key": f"k{number}", "operator": "In", "values": ["a", "b"]}]},
        }
        for number in range(stage.size.of(2_000))
    ]
    anti_affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    placed = make_pod(SMALL, nodeName="n00000", affinity=anti_affinity)
    waiting = [make_pod(HUGE, labels={f"k{number}": "c"}) for number in range(stage.size.of(3_000))]
    stage.make_pods(PLACED, [placed])
    stage.make_pods(ATTACKER, waiting)
    yield touch_pod(stage, PLACED, placed)
    remove_all(stage)


@attack("2", "3,000 placed pods with 32 terms each that ask for no value, one of them labelled again and again")
def placed_terms_without_values(stage: Stage) -> Iterator[Repeated]:
    """Required and preferred ones, each with a key of its own, that select nothing: no label's value finds them."""
    placed = []
    for number in range(stage.size.of(3_000)):
        terms = [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchExpressions": [{"key": f"k{number}-{place}", "operator": "Exists"}]},
            }
            for place in range(32)
        ]
        preferred = [{"weight": 1, "podAffinityTerm": term} for term in terms[16:]]
        affinity = {
            "requiredDuringSchedulingIgnoredDuringExecution": terms[:16],
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
        server = f"n{number % stage.size.nodes:05d}"
        placed.append(make_pod(SMALL, nodeName=server, affinity={"podAntiAffinity": affinity}))
    stage.make_pods(PLACED, placed)
    yield touch_pod(stage, PLACED, placed[0], "labels")
    remove_all(stage)


@attack("3", "5,000 waiting pods that differ in one toleration each")
def many_tolerations(stage: Stage) -> Iterator[Repeated]:
    """No taint has any of these keys."""
    stage.make_pods(
        ATTACKER,
        [
            make_pod(HUGE, tolerations=[{"key": f"t{number}", "operator": "Exists"}])
            for number in range(stage.size.of(5_000))
        ],
    )
    yield None
    stage.remove_pods(ATTACKER)


def make_daemons(stage: Stage, requests: dict[str, str], *, scheduler_name: str, placed: bool) -> list[Json]:
    """Return a pod for each node, as the controller of DaemonSets writes it."""
    pods = []
    for number in range(stage.size.nodes):
        node = f"n{number:05d}"
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        place: dict[str, Any] = {"nodeName": node} if placed else {}
        pods.append(make_pod(requests, scheduler_name=scheduler_name, affinity=affinity, **place))
    return pods


@attack("4", "five DaemonSets bound by another scheduler")
def foreign_daemons(stage: Stage) -> Iterator[Repeated]:
    """A pod of each on each node."""
    for _ in range(5):
        stage.make_pods(PLACED, make_daemons(stage, SMALL, scheduler_name="default-scheduler", placed=True))
    yield None
    remove_all(stage)


@attack("5", "a DaemonSet of our own, a pod for each node")
def own_daemons(stage: Stage) -> Iterator[Repeated]:
    """They wait, so that they are looked at again and again."""
    stage.make_pods(ATTACKER, make_daemons(stage, HUGE, scheduler_name="fairbind", placed=False))
    yield None
    stage.remove_pods(ATTACKER)


@attack("6", "50 readers of /metrics at a time")
def many_readers(stage: Stage) -> Iterator[Repeated]:
    """Each of them at once, again and again."""
    assert stage.operator is not None
    pages = stage.operator.pages
    pool = stage.operator.make_pool(maxsize=50, source_address=ELSEWHERE)

    def read(_: int) -> None:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            pool.request("GET", f"{pages}/metrics", timeout=PAGE_SECONDS)

    with ThreadPoolExecutor(50) as executor:
        yield lambda: list(executor.map(read, range(50)))
    pool.clear()


@attack("7", "5,000 requests that are never ended")
def half_open(stage: Stage) -> Iterator[Repeated]:
    """Of one half the rest of the headers does not come, of the other half not even the handshake of TLS."""
    assert stage.operator is not None
    host, _, port = stage.operator.address.rpartition(":")
    opened: list[socket.socket] = []
    trusting = ssl._create_unverified_context()

    def open_one(number: int) -> None:
        with contextlib.suppress(OSError):
            made = socket.create_connection((host, int(port)), timeout=5.0, source_address=ELSEWHERE)
            if number % 2:
                made = trusting.wrap_socket(made)
                made.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            opened.append(made)

    call_many(range(stage.size.of(5_000)), open_one)
    yield None
    for one in opened:
        one.close()


@attack("8", "junk tokens without end", "--metrics-authentication")
def junk_tokens(stage: Stage) -> Iterator[Repeated]:
    """Each is another one; whoever has a good one is asked about apart."""
    assert stage.operator is not None
    pages = stage.operator.pages
    pool = stage.operator.make_pool(maxsize=16, source_address=ELSEWHERE)
    numbers = itertools.count()

    def knock(_: int) -> None:
        headers = {"Authorization": f"Bearer junk-{next(numbers)}"}
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            pool.request("GET", f"{pages}/metrics", headers=headers, timeout=PAGE_SECONDS)

    with ThreadPoolExecutor(16) as executor:
        yield lambda: list(executor.map(knock, range(200)))
    pool.clear()


@attack("9", "a namespace whose bindings are answered with 500", fits=True)
def failing_binds(stage: Stage) -> Iterator[Repeated]:
    """By a webhook of its own; 3,000 pods that have room everywhere."""
    with failing_webhook() as (url, authority):
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
        hook = {
            "name": WEBHOOK,
            "clientConfig": {"url": url, "caBundle": authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ATTACKER}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
        }
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        stage.api.post(path, {"metadata": {"name": ATTACKER}, "webhooks": [hook]})
        try:
            stage.make_pods(ATTACKER, [make_pod(SMALL) for _ in range(stage.size.of(3_000))])
            yield None
        finally:
            stage.api.delete(f"{path}/{ATTACKER}")
            stage.remove_pods(ATTACKER)


@attack("14", "2,000 waiting pods that each count all others, beside 3,000 placed pods with labels of their own")
def many_wishes(stage: Stage) -> Iterator[Repeated]:
    """By affinity, anti-affinity and spread; each term is another, and a placed pod's labels change again and again."""
    placed = [
        make_pod(SMALL, nodeName=f"n{number % stage.size.nodes:05d}", labels={f"own{number}": "x"})
        for number in range(stage.size.of(3_000))
    ]
    waiting = [make_counting_pod(f"k{number}") for number in range(stage.size.of(2_000))]
    stage.make_pods(PLACED, placed)
    stage.make_pods(ATTACKER, waiting)
    yield touch_pod(stage, PLACED, placed[0], "labels")
    remove_all(stage)


def make_counting_pod(key: str) -> Json:
    """Return a pod that waits for ever and whose wishes are about all pods without a label of this key."""
    selector = {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}
    term = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}, "labelSelector": selector}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    spread = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    affinity = {"podAffinity": required, "podAntiAffinity": required}
    return make_pod(HUGE, affinity=affinity, topologySpreadConstraints=[spread])


@attack("15", "300 waiting pods with claims that no provisioner answers, beside 300 whose resource claims do not exist")
def unanswered_claims(stage: Stage) -> Iterator[Repeated]:
    """There is room for all of them, so each takes whatever a pod takes that is about to be placed."""
    count = stage.size.of(300)
    make_classes(stage)
    try:
        pods = [make_claiming_pod(SMALL, [name]) for name in make_unbound(stage, ATTACKER, count)]
        for number in range(count):
            missing = [{"name": "device", "resourceClaimName": f"missing-{number}"}]
            pods.append(make_pod(SMALL, resourceClaims=missing))
        stage.make_pods(ATTACKER, pods)
        yield None
    finally:
        remove_all(stage)
        remove_storage(stage, [ATTACKER])


@attack("16", "500 waiting pods with more volumes than a node attaches, beside 500 that share a ReadWriteOncePod claim")
def scarce_volumes(stage: Stage) -> Iterator[Repeated]:
    """Each node attaches one volume of the driver, and pods of the first kind have two."""
    count = stage.size.of(500)
    make_classes(stage)
    try:
        limit_slots(stage, [f"n{number:05d}" for number in range(stage.size.nodes)], 1)
        (only,) = make_bound(stage, ATTACKER, 1, "ReadWriteOncePod")
        claims = make_bound(stage, ATTACKER, 2 * count)
        pods = [make_claiming_pod(SMALL, two) for two in zip(claims[::2], claims[1::2], strict=True)]
        stage.make_pods(ATTACKER, [*pods, *[make_claiming_pod(SMALL, [only]) for _ in range(count)]])
        yield touch_pod(stage, ATTACKER, pods[0])
    finally:
        remove_all(stage)
        remove_storage(stage, [ATTACKER])


@attack("17", "3,000 placed pods that each repel pods of a label of their own, 50 of them labelled again and again")
def relabelled_terms(stage: Stage) -> Iterator[Repeated]:
    """A term selects its own pod, then no pod, then another."""
    placed = []
    for number in range(stage.size.of(3_000)):
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"own": f"x{number}"}}}
        required = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        server = f"n{number % stage.size.nodes:05d}"
        placed.append(make_pod(SMALL, nodeName=server, labels={"own": f"x{number}"}, affinity=required))
    stage.make_pods(PLACED, placed)
    turns = itertools.count(1)

    def label_again() -> None:
        turn = next(turns)

        def label(number: int) -> None:
            path = f"/api/v1/namespaces/{PLACED}/pods/{placed[number]['metadata']['name']}"
            stage.api.patch(path, {"metadata": {"labels": {"own": f"x{number + turn % 3}"}}})

        call_many(range(min(50, len(placed))), label)

    yield label_again
    remove_all(stage)


def make_ordinary(*, fits: bool) -> Json:
    """Return a pod that no node can hold, or one that fits and gets no turn; see `ordinary_pods`."""
    if not fits:
        return make_pod(HUGE)
    keys = (f"t{number}" for number in range(MAX_TOLERATIONS + 1))
    return make_pod(SMALL, tolerations=[{"key": key, "operator": "Exists"} for key in keys])


@contextlib.contextmanager
def ordinary_pods(stage: Stage, count: int, *, fits: bool) -> Iterator[None]:
    """Let so many harmless pods of the attacker wait: all who have many pods in kube-scheduler's queue cost that much.

    fits: whether they fit on nodes and get no turn, as they have more tolerations than fairbind looks at; in extender
    mode kube-scheduler looks at such a pod after each binding. If not, no node can hold them.
    """
    stage.make_pods(ATTACKER, [make_ordinary(fits=fits) for _ in range(count)])
    yield
    stage.remove_pods(ATTACKER)


class _Refuse(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(500)

    def log_message(self, *_: object) -> None:
        """Say nothing: it answers thousands of times."""


class _SilentServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """The API server ends connections as it likes."""


@contextlib.contextmanager
def failing_webhook() -> Iterator[tuple[str, str]]:
    """Serve 500 by HTTPS on loopback; the URL and the authority's certificate, as base64."""
    authority = Authority("webhook")
    pair = authority.issue_server("the-webhook", ("127.0.0.1",))
    server = _SilentServer(("127.0.0.1", 0), _Refuse)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile() as joined:  # the ssl module takes certificates from files only
        joined.write(pair.certificate + b"\n" + pair.key)
        joined.flush()
        tls.load_cert_chain(joined.name)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/", base64.b64encode(authority.certificate).decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Repeater:
    """Calls something again and again, with pauses, while the context lasts. failed: how often it was refused."""

    def __init__(self, repeated: Repeated, pause_seconds: float) -> None:
        self.done = 0
        self.failed = 0
        self._repeated = repeated
        self._pause_seconds = pause_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="repeater", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while self._repeated is not None and not self._ended.wait(self._pause_seconds):
            try:
                self._repeated()
                self.done += 1
            except (ApiError, urllib3.exceptions.HTTPError):
                self.failed += 1
