"""The kinds of faults: what is drawn for one, how it begins and how it ends.

Drawing knows nothing of the run, so the same seed gives the same faults. Applying is a context: the fault lasts as long
as it does, and is undone with it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import random
import resource
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e.objects import POLICIES, TENANTS
from e2e.waiting import wait_for
from e2e.workloads import create_object
from faults.wire import Mood, mooded
from localplane.plane import are_crds_served

if TYPE_CHECKING:
    from faults.world import Replica, World
    from localplane.client import Json

Settings = dict[str, Any]
Context = AbstractContextManager[None]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MEBIBYTE = 1 << 20
DAY_SECONDS = 86400
WHO = ("leader", "leader", "standby", "both")


@dataclass(frozen=True, slots=True)
class Kind:
    """draw: what to do, from a seeded generator. group: two of the same group do not overlap. longest: in seconds.

    weights: how often it is drawn in a long run and in a short one. notice: for so many seconds longer nobody can know
    of it: what died without a word has no end until it is noticed.
    """

    name: str
    group: str
    longest: float
    weights: tuple[int, int]
    draw: Callable[[random.Random], Settings]
    apply: Callable[[World, Settings], Context]
    notice: float = 0.0


KINDS: list[Kind] = []


def kind(
    name: str, group: str, *, longest: float = 15.0, weights: tuple[int, int] = (4, 1), notice: float = 0.0
) -> Callable[[Callable[[World, Settings], Iterator[None]]], Callable[[World, Settings], Context]]:
    """Register a generator that begins a fault, yields, and ends it; its settings are drawn by `DRAWS`."""

    def register(apply: Callable[[World, Settings], Iterator[None]]) -> Callable[[World, Settings], Context]:
        context = contextlib.contextmanager(apply)
        draw = DRAWS.get(name, draw_who)
        KINDS.append(Kind(name, group, longest, weights, draw, context, notice))
        return context

    return register


def draw_who(generator: random.Random) -> Settings:
    """Return whom it meets."""
    return {"who": generator.choice(WHO)}


def draw_latency(generator: random.Random) -> Settings:
    """Return from when to when answers come, at most ten seconds late."""
    most = round(generator.choice((0.2, 1.0, 3.0, 10.0)) * generator.uniform(0.5, 1.0), 2)
    return {**draw_who(generator), "latency": [round(most * generator.random(), 2), most]}


def draw_answers(generator: random.Random) -> Settings:
    """Return how many of the requests are refused."""
    retry_after = generator.choice((1, 1, 5, 30, DAY_SECONDS))
    return {**draw_who(generator), "part": generator.choice((0.05, 0.3, 0.7, 1.0)), "retry_after": retry_after}


def draw_clock(generator: random.Random) -> Settings:
    """Return by how much the wall clock is set, in seconds."""
    step = generator.choice((1.0, 10.0, 60.0, 3600.0, float(DAY_SECONDS))) * generator.choice((-1, 1))
    return {**draw_who(generator), "step": step}


def draw_definitions(generator: random.Random) -> Settings:
    """Return which CRDs go."""
    return {"crds": generator.choice((["tenants"], ["schedulingpolicies"], ["tenants", "schedulingpolicies"]))}


def draw_memory(generator: random.Random) -> Settings:
    """Return how much more memory there is than it has, in MiB."""
    return {**draw_who(generator), "more": generator.choice((0, 1, 8, 32))}


def draw_nothing(generator: random.Random) -> Settings:
    """There is nothing to be chosen."""
    del generator
    return {}


def draw_writes(generator: random.Random) -> Settings:
    """Return how much is written before the operators can see it."""
    return {"writes": generator.choice((0, 100, 400))}


SCHEDULER_KINDS = "kube-scheduler killed", "kube-scheduler frozen"
"""Where kube-scheduler places the pods."""
REFUSALS = {"409 answers": 409, "410 answers": 410, "429 answers": 429, "500 answers": 500}
DRAWS: Mapping[str, Callable[[random.Random], Settings]] = {
    "latency": draw_latency,
    **dict.fromkeys((*REFUSALS, "answers lost"), draw_answers),
    "clock stepped": draw_clock,
    "CRD deleted and made again": draw_definitions,
    "memory refused": draw_memory,
    **dict.fromkeys(
        (
            "API server killed",
            "API server frozen",
            "API server's history lost",
            "etcd killed",
            "etcd frozen",
            *SCHEDULER_KINDS,
        ),
        draw_nothing,
    ),
    "etcd restored from a copy": draw_writes,
}


def find_wires(world: World, settings: Settings) -> list[Any]:
    """Return the wires that a fault meets."""
    return [replica.wire for replica in world.find(settings["who"])]


@kind("latency", "wire")
def latency(world: World, settings: Settings) -> Iterator[None]:
    """All that passes is late."""
    least, most = settings["latency"]
    with mooded(find_wires(world, settings), Mood(latency=(least, most))):
        yield


def register_refusals() -> None:
    """Each status is a kind of its own."""
    for name, code in REFUSALS.items():

        def refuse(world: World, settings: Settings, code: int = code) -> Iterator[None]:
            mood = Mood(answers={code: settings["part"]}, retry_after=settings["retry_after"])
            with mooded(find_wires(world, settings), mood):
                yield

        kind(name, "wire")(refuse)


register_refusals()


@kind("answers lost", "wire")
def answers_lost(world: World, settings: Settings) -> Iterator[None]:
    """The server does it, and nobody hears so."""
    with mooded(find_wires(world, settings), Mood(lost=settings["part"])):
        yield


@kind("resets", "wire")
def resets(world: World, settings: Settings) -> Iterator[None]:
    """All flows break, twice a second."""
    ended = threading.Event()
    wires = find_wires(world, settings)

    def reset_often() -> None:
        while not ended.wait(0.5):
            for wire in wires:
                wire.reset()

    thread = threading.Thread(target=reset_often, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@kind("silence, then all at once", "wire")
def silence(world: World, settings: Settings) -> Iterator[None]:
    """Nothing passes and nothing breaks; what was held comes in the end."""
    with mooded(find_wires(world, settings), Mood(is_silent=True)):
        yield


@kind("flows dead without a word", "wire", longest=3.0, weights=(3, 0), notice=30.0)
def dead_flows(world: World, settings: Settings) -> Iterator[None]:
    """What flows now never carries anything again; new flows do."""
    for wire in find_wires(world, settings):
        wire.kill_flows()
    yield


@kind("network cut", "wire")
def network_cut(world: World, settings: Settings) -> Iterator[None]:
    """Connections break and are refused."""
    with cut(world.find(settings["who"])):
        yield


@contextlib.contextmanager
def cut(replicas: list[Replica]) -> Iterator[None]:
    """Nothing passes between these and the API server."""
    for replica in replicas:
        replica.relay.cut()
    try:
        yield
    finally:
        for replica in replicas:
            replica.relay.mend()


@kind("API server killed", "plane")
def server_killed(world: World, settings: Settings) -> Iterator[None]:
    """And started again."""
    del settings
    world.plane.stop_component("kube-apiserver", kill=True)
    yield
    world.plane.start_component("kube-apiserver")


@contextlib.contextmanager
def stopped(world: World, component: str) -> Iterator[None]:
    """A part of the control plane stands still."""
    world.plane.send(component, signal.SIGSTOP)
    try:
        yield
    finally:
        world.plane.send(component, signal.SIGCONT)
        world.plane.wait_usable()


@kind("API server frozen", "plane")
def server_frozen(world: World, settings: Settings) -> Iterator[None]:
    """It stands still and goes on."""
    del settings
    with stopped(world, "kube-apiserver"):
        yield


@kind("API server's history lost", "plane", longest=2.0, weights=(2, 1))
def history_lost(world: World, settings: Settings) -> Iterator[None]:
    """Every watch that is resumed is answered 410."""
    del settings
    world.plane.compact()
    yield


@kind("etcd killed", "plane")
def etcd_killed(world: World, settings: Settings) -> Iterator[None]:
    """And started again on its files."""
    del settings
    world.plane.stop_component("etcd", kill=True)
    yield
    world.plane.start_component("etcd")
    world.plane.wait_usable()


@kind("etcd frozen", "plane")
def etcd_frozen(world: World, settings: Settings) -> Iterator[None]:
    """It stands still and goes on."""
    del settings
    with stopped(world, "etcd"):
        yield


@kind("etcd restored from a copy", "plane")
def etcd_restored(world: World, settings: Settings) -> Iterator[None]:
    """All that was done since the copy was made is undone, and revisions go back.

    They may have caught up when the operators can see them.
    """
    copy = world.plane.directory / "etcd-copy"
    moment = dt.datetime.now(dt.UTC)
    world.copy_etcd(copy)
    yield
    with cut(world.replicas), world.storage.pausing():
        world.restore_etcd(copy)
        world.judge.forget_since(moment)
        world.write(settings["writes"])
    for replica in world.replicas:
        if not world.has_secret(replica):
            replica.renew_access()


@kind("kube-scheduler killed", "plane")
def scheduler_killed(world: World, settings: Settings) -> Iterator[None]:
    """And started again."""
    del settings
    world.plane.stop_component("kube-scheduler", kill=True)
    yield
    world.scheduler.start()


@kind("kube-scheduler frozen", "plane")
def scheduler_frozen(world: World, settings: Settings) -> Iterator[None]:
    """It stands still and goes on."""
    del settings
    with stopped(world, "kube-scheduler"):
        yield


@kind("killed", "process")
def killed(world: World, settings: Settings) -> Iterator[None]:
    """As the kernel kills who takes too much memory; its container is started again."""
    victims = world.find(settings["who"])
    for replica in victims:
        replica.end()
    yield
    for replica in victims:
        replica.start()


@kind("frozen", "process", longest=30.0)
def frozen(world: World, settings: Settings) -> Iterator[None]:
    """It stands still, and goes on as if nothing had been."""
    victims = world.find(settings["who"])
    for replica in victims:
        replica.send(signal.SIGSTOP)
    try:
        yield
    finally:
        for replica in victims:
            replica.send(signal.SIGCONT)


@kind("ended in order", "process")
def ended(world: World, settings: Settings) -> Iterator[None]:
    """Told to end, as in a rollout, and started again."""
    victims = world.find(settings["who"])
    for replica in victims:
        replica.send(signal.SIGTERM)
    yield
    for replica in victims:
        replica.end()
        replica.start()


@kind("memory refused", "process", weights=(3, 1))
def memory_refused(world: World, settings: Settings) -> Iterator[None]:
    """Its address space may not grow any more; if it ends of that, its container is started again."""
    victims = world.find(settings["who"])
    limited = []
    for replica in victims:
        if replica.operator is not None and replica.is_running:
            pid = replica.operator.pid
            most = read_address_space(pid) + settings["more"] * MEBIBYTE
            resource.prlimit(pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
            limited.append((replica, pid))
    yield
    for replica, pid in limited:
        if replica.is_running:
            resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        else:
            settings["ended"] = settings.get("ended", 0) + 1
            restart(replica)


def restart(replica: Replica) -> None:
    """Start a container again."""
    replica.end()
    replica.start()


def read_address_space(pid: int) -> int:
    """Return the bytes of a process's address space."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize:"))


@kind("clock stepped", "clock")
def clock_stepped(world: World, settings: Settings) -> Iterator[None]:
    """The wall clock is set, there and back."""
    victims = world.find(settings["who"])
    for replica in victims:
        replica.step_clock(settings["step"])
    try:
        yield
    finally:
        for replica in victims:
            replica.step_clock(0.0)


@kind("two versions at once", "process", weights=(3, 0))
def two_versions(world: World, settings: Settings) -> Iterator[None]:
    """One replica, or both, run other code meanwhile, as in an upgrade and the way back."""
    victims = world.find(settings["who"])
    for replica in victims:
        replica.send(signal.SIGTERM)
        replica.end()
        replica.start(world.code)
    yield
    for replica in victims:
        restart(replica)


@kind("token rotated", "objects", longest=3.0)
def token_rotated(world: World, settings: Settings) -> Iterator[None]:
    """A new token is in the file, and the old one is refused."""
    for replica in world.find(settings["who"]):
        replica.renew_access()
    yield


@kind("authority rotated", "objects", longest=3.0)
def authority_rotated(world: World, settings: Settings) -> Iterator[None]:
    """The server has a certificate of another authority, which is in the file."""
    for replica in world.find(settings["who"]):
        replica.wire.rotate_authority()
        replica.renew_access()
    yield


@kind("CRD deleted and made again", "objects")
def definitions_deleted(world: World, settings: Settings) -> Iterator[None]:
    """With all Tenants and SchedulingPolicies, which are made again as well."""
    paths = [f"{DEFINITIONS}/{name}.fairbind.io" for name in settings["crds"]]
    definitions = [world.api.get(path) for path in paths]
    collections = {"tenants": TENANTS, "schedulingpolicies": POLICIES}
    kept = {collections[name]: world.api.items(collections[name]) for name in settings["crds"]}
    for path in paths:
        world.api.delete(path)
    for path in paths:
        wait_for(functools.partial(world.is_gone, path), describe=f"{path} to go")
    yield
    for definition in definitions:
        world.api.post(DEFINITIONS, strip(definition))
    wait_for(lambda: are_crds_served(world.api), describe="the CRDs to be served")
    for collection, items in kept.items():
        for item in items:
            wait_for(functools.partial(create_object, world.api, collection, strip(item)), describe=collection)


def strip(thing: Json) -> Json:
    """Return an object as somebody would write it down who makes it anew."""
    metadata = {key: thing["metadata"][key] for key in ("name", "labels", "annotations") if key in thing["metadata"]}
    return {key: thing[key] for key in ("apiVersion", "kind", "spec") if key in thing} | {"metadata": metadata}
