"""The command `fairbind operator`: credentials, metrics, probes, signals and the operator itself, put together.

Two threads share the work. The main one decides and binds. The other, the front, renews the lease and answers over
HTTP, with connections of its own to the API server, so that neither waits for a long cycle. kube-scheduler's
connections in extender mode end in the front, too; the main one answers, because the answers are decisions.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairbind import __version__
from fairbind.cli.logs import LogFormat, set_up_logging
from fairbind.cluster.state.undoing import UndoRule
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import Credentials, load_credentials
from fairbind.kube.client.errors import PermanentClusterError
from fairbind.kube.client.reviews import Reviews
from fairbind.kube.operator.election import STALLED_SECONDS, OnChange, ThreadedElector
from fairbind.kube.operator.elector import Elector, make_identity, read_steady_clock
from fairbind.kube.operator.extender import ExtenderSettings
from fairbind.kube.operator.gates import GateSettings
from fairbind.kube.operator.health import Health
from fairbind.kube.operator.journal import JournalWriter
from fairbind.kube.operator.life import Operator
from fairbind.kube.operator.loop_thread import LoopThread
from fairbind.kube.operator.other_installations import OtherInstallations
from fairbind.kube.operator.surroundings import Answer, OperatorSettings, Surroundings
from fairbind.kube.writers.share_report import ReportWords
from fairbind.web.extender import ExtenderServer
from fairbind.web.metrics import UNKNOWN_REVISION, Metrics
from fairbind.web.server import WebServer
from fairbind.web.serving import Address, parse_address
from fairbind.web.tls import Certificate, ServingCertificate

SIGNAL_EXIT_BASE = 128
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SELF_SIGNED = "self-signed"
REVISION_VARIABLE = "FAIRBIND_REVISION"
"""The environment variable that says from which commit the image was built."""
USER_AGENT = f"fairbind/{__version__}"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Pages:
    """How metrics and probes are served.

    certificate: None for HTTP. is_guarded: whether readers need a token. audiences: for whom it must be made; empty:
    for the API server.
    """

    address: Address
    certificate: Certificate | None
    is_guarded: bool
    audiences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GateOptions:
    """What was typed about gate mode."""

    scheduler_name: str
    most: int
    timeout_seconds: float
    most_scale_ups: int
    narrows_to_nodes: bool


@dataclass(frozen=True, slots=True)
class ExtenderOptions:
    """What was typed about extender mode. folder: with the certificates."""

    scheduler_names: frozenset[str]
    address: str
    folder: Path | None
    client_names: tuple[str, ...]
    service: str | None
    pod_ip: str | None
    most: int
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class _ExtenderPages:
    """How kube-scheduler is answered. client_names: common names of those who may ask."""

    address: Address
    certificate: ServingCertificate
    client_names: tuple[str, ...]

    async def serve(self, thread: LoopThread, answer: Answer) -> None:
        """Serve until cancelled: handshakes and requests in this thread, answers in the caller's loop."""
        deciding = asyncio.get_running_loop()

        async def ask(verb: str, body: bytes) -> tuple[int, bytes]:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_await(answer(verb, body)), deciding))

        await thread.run(self._serve_here(ask))

    async def _serve_here(self, answer: Answer) -> None:
        server = ExtenderServer(self.address, answer, tls=self.certificate.context, client_names=self.client_names)
        address = await server.start()
        _log.info("kube-scheduler is answered on %s://%s", server.scheme, address)
        try:
            await self.certificate.keep_fresh(server.use_tls)
        finally:
            await server.stop()


async def _await(answer: Awaitable[tuple[int, bytes]]) -> tuple[int, bytes]:
    return await answer


def _read_gates(options: GateOptions | None, scheduler_names: Collection[str]) -> GateSettings | None:
    """Return what the operator needs. PermanentClusterError for what makes no sense."""
    if options is None:
        return None
    if options.scheduler_name in scheduler_names:
        raise PermanentClusterError(
            f"--gate-scheduler-name and --scheduler-name are both {options.scheduler_name!r}; "
            "pods that fairbind binds itself need no gate"
        )
    return GateSettings(
        options.scheduler_name,
        most=options.most,
        timeout_seconds=options.timeout_seconds,
        most_scale_ups=options.most_scale_ups,
        narrows_to_nodes=options.narrows_to_nodes,
    )


def _read_extender(
    options: ExtenderOptions | None, scheduler_names: Sequence[str], namespace: str
) -> tuple[ExtenderSettings | None, _ExtenderPages | None]:
    """Return what the operator and the server need. PermanentClusterError for what makes no sense."""
    if options is None:
        return None, None
    both = [name for name in scheduler_names if name in options.scheduler_names]
    if both:
        raise PermanentClusterError(
            f"--extender-scheduler-name and --scheduler-name are both {both[0]!r}; "
            "pods that fairbind binds itself are not asked about"
        )
    if options.folder is None:
        raise PermanentClusterError("--mode extender needs --extender-tls: a folder with tls.crt, tls.key and ca.crt")
    if options.service is not None and not _is_address(options.pod_ip):
        raise PermanentClusterError("--extender-service needs --extender-pod-ip, the address of this replica")
    address = parse_address(options.address)
    pages = _ExtenderPages(address, ServingCertificate(options.folder, asks_clients=True), options.client_names)
    settings = ExtenderSettings(
        options.scheduler_names,
        most=options.most,
        timeout_seconds=options.timeout_seconds,
        service=options.service,
        namespace=namespace,
        address=options.pod_ip or "",
        port=address.port,
    )
    return settings, pages


def _is_address(text: str | None) -> bool:
    try:
        ipaddress.ip_address(text or "")
    except ValueError:
        return False
    return True


def serve(
    *,
    kubeconfig: Path | None,
    namespace: str,
    metrics_address: str,
    metrics_tls: str | None,
    metrics_authentication: bool,
    metrics_audiences: tuple[str, ...],
    scheduler_names: tuple[str, ...],
    kept_seconds: float,
    undo_groups: bool,
    undo_seconds: float,
    volcano_inqueue: bool,
    gates: GateOptions | None,
    extender: ExtenderOptions | None,
    shows_taints: bool,
    tenant_view: str,
    log_format: LogFormat,
    log_level: str,
    journal: Path | None,
) -> None:
    """Run the operator until it is asked to stop. Raises FairbindError; PermanentClusterError for bad settings.

    gates: of gate mode. extender: of extender mode. None of both: bind mode. shows_taints: to the owners of pods.
    tenant_view: off, own, or all: what members of namespaces are told of shares. scheduler_names: the first one stands
    for all of them. kept_seconds: for how long places of lost members of groups are kept. undo_groups: whether pods of
    groups are evicted that were below their minimum for `undo_seconds` and never had it.
    volcano_inqueue: whether Jobs of Volcano may make their pods.
    """
    gate_settings = _read_gates(gates, scheduler_names)
    extender_settings, extender_pages = _read_extender(extender, scheduler_names, namespace)
    pages = _Pages(
        address=parse_address(metrics_address),
        certificate=_find_certificate(metrics_tls),
        is_guarded=metrics_authentication,
        audiences=metrics_audiences,
    )
    settings = OperatorSettings(
        namespace=namespace,
        scheduler_name=scheduler_names[0],
        other_names=frozenset(scheduler_names[1:]),
        kept_seconds=kept_seconds,
        undo_rule=UndoRule(undo_seconds, evicts=undo_groups),
        volcano_inqueue=volcano_inqueue,
        identity=make_identity(),
        gates=gate_settings,
        extender=extender_settings,
        shows_taints=shows_taints,
        report_words=None if tenant_view == "off" else ReportWords(tenant_view == "all", shows_taints),
    )
    set_up_logging(log_format, log_level)
    # Credentials belong to one event loop: each thread reads its own.
    credentials, front_credentials = load_credentials(kubeconfig), load_credentials(kubeconfig)
    make_loop = _find_loop_factory()
    front = LoopThread("front", make_loop=make_loop)
    front.start()
    try:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            front_parts = _Front(front, front_credentials)
            runner.run(_serve(credentials, front_parts, settings, pages, extender_pages, journal))
    finally:
        front.stop()


def _find_certificate(source: str | None) -> Certificate | None:
    """source: `SELF_SIGNED`, a folder, or None for no TLS."""
    if source is None:
        return None
    if source != SELF_SIGNED:
        return ServingCertificate(Path(source))
    from fairbind.web.self_signed import SelfSignedCertificate  # noqa: PLC0415 - not needed with a certificate given

    return SelfSignedCertificate()


@dataclass(frozen=True, slots=True)
class _Front:
    """The second thread, and with what it reaches the API server."""

    thread: LoopThread
    credentials: Credentials


async def _serve(
    credentials: Credentials,
    front: _Front,
    settings: OperatorSettings,
    pages: _Pages,
    extender: _ExtenderPages | None,
    journal_path: Path | None,
) -> None:
    stopping = StopSignals(asyncio.get_running_loop())
    stopping.install()
    asyncio.get_running_loop().set_exception_handler(judge_trouble)
    front.thread.call(_judge_trouble_here)
    metrics, health = Metrics(revision=os.environ.get(REVISION_VARIABLE) or UNKNOWN_REVISION), Health()
    api, front_api = (ApiClient(own, user_agent=USER_AGENT) for own in (credentials, front.credentials))
    journal = None if journal_path is None else JournalWriter(journal_path)

    def make_elector(on_change: OnChange) -> Elector:
        return Elector(
            front_api,
            settings.namespace,
            identity=settings.identity,
            on_change=on_change,
            may_stand=lambda: health.stalled_seconds < STALLED_SECONDS,
            others=OtherInstallations(
                front_api,
                settings.namespace,
                settings.scheduler_name,
                clock=read_steady_clock,
                other_names=settings.other_names,
            ),
        )

    try:
        async with front.thread.entered(_serving(pages, metrics, health, front_api)) as url:
            _log.info("fairbind %s as %s; metrics on %s/metrics", __version__, settings.identity, url)
            _log.info("cluster %s by %s", credentials.server, credentials.source)
            surroundings = Surroundings(
                make_election=lambda on_change: ThreadedElector(make_elector, front.thread, on_change),
                serve_extender=None if extender is None else partial(extender.serve, front.thread),
            )
            await Operator(
                settings,
                credentials,
                api,
                metrics,
                health,
                stopping.install,
                journal=journal,
                surroundings=surroundings,
            ).run(stopping.requested)
    finally:
        if journal is not None:
            journal.close()
        await front.thread.run(front_api.close())
        await api.close()
    _log.info("stopped")


@contextlib.asynccontextmanager
async def _serving(pages: _Pages, metrics: Metrics, health: Health, api: ApiClient) -> AsyncIterator[str]:
    """Serve metrics and probes, and give the URL below which they are."""
    certificate = pages.certificate
    web = WebServer(
        pages.address,
        metrics.render,
        find_dead=health.find_dead,
        find_unready=health.find_unready,
        find_refusal=Reviews(api, "/metrics", audiences=pages.audiences).find_refusal if pages.is_guarded else None,
        tls=None if certificate is None else certificate.context,
    )
    address = await web.start()
    if pages.is_guarded and certificate is None:
        _log.warning("the metrics are served without TLS: tokens of their readers can be read on the way")
    refreshing = None if certificate is None else asyncio.create_task(certificate.keep_fresh(), name="certificate")
    try:
        yield f"{web.scheme}://{address}"
    finally:
        if refreshing is not None:
            refreshing.cancel()
        await web.stop()


class StopSignals:
    """SIGTERM and SIGINT: the first asks for an orderly end, the second ends the process at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.requested = asyncio.Event()

    def install(self) -> None:
        """Take the signals, also back from a library that took them from us."""
        for number in STOP_SIGNALS:
            self._loop.add_signal_handler(number, self._receive, number)

    def _receive(self, number: signal.Signals) -> None:
        if self.requested.is_set():
            _log.warning("%s again: ending at once", number.name)
            logging.shutdown()
            os._exit(SIGNAL_EXIT_BASE + number)
        _log.info("%s: finishing the bindings in flight", number.name)
        self.requested.set()


def judge_trouble(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what was not caught, but not what is closed while something arrives: nothing waits for that.

    uvloop calls a closed connection a fatal error of the SSL protocol; a leader that was frozen has several when it
    thaws. A watch of kopf that is closed as the loop ends, just when it gets an event, cannot end its streaming block.
    """
    error = context.get("exception")
    is_closed = isinstance(error, OSError) or (isinstance(error, RuntimeError) and "handler is closed" in str(error))
    if "protocol" in context and is_closed:
        _log.debug("a connection that is closed: %s: %r", context.get("message"), error)
    elif "asyncgen" in context and isinstance(error, RuntimeError) and "didn't stop after athrow" in str(error):
        _log.debug("a watch that is closed: %s: %r", context.get("message"), error)
    else:
        loop.default_exception_handler(context)


def _judge_trouble_here() -> None:
    asyncio.get_running_loop().set_exception_handler(judge_trouble)


def _find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where uvloop exists: a request costs a fifth less (docs/benchmarks)."""
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - it is not installed on Windows

    return uvloop.new_event_loop
