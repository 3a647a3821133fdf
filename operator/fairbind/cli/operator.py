"""The command `fairbind operator`: credentials, metrics, probes, signals and the operator itself, put together."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from fairbind import __version__
from fairbind.cli.logs import LogFormat, set_up_logging
from fairbind.kube.api import ApiClient
from fairbind.kube.credentials import Credentials, load_credentials
from fairbind.kube.elector import make_identity
from fairbind.kube.health import Health
from fairbind.kube.service import OperatorSettings, run_operator
from fairbind.web.metrics import Metrics
from fairbind.web.server import Address, WebServer, parse_address

SIGNAL_EXIT_BASE = 128
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


def serve(
    *,
    kubeconfig: Path | None,
    namespace: str,
    metrics_address: str,
    scheduler_name: str,
    log_format: LogFormat,
    log_level: str,
) -> None:
    """Run the operator until it is asked to stop. Raises FairbindError; PermanentClusterError for bad settings."""
    address = parse_address(metrics_address)
    settings = OperatorSettings(namespace=namespace, scheduler_name=scheduler_name, identity=make_identity())
    set_up_logging(log_format, log_level)
    credentials = load_credentials(kubeconfig)
    with asyncio.Runner(loop_factory=_find_loop_factory()) as runner:
        runner.run(_serve(credentials, settings, address))


async def _serve(credentials: Credentials, settings: OperatorSettings, address: Address) -> None:
    stopping = StopSignals(asyncio.get_running_loop())
    stopping.install()
    metrics, health = Metrics(), Health()
    web = WebServer(address, metrics.render, find_dead=health.find_dead, find_unready=health.find_unready)
    bound = await web.start()
    _log.info("fairbind %s as %s; metrics on http://%s/metrics", __version__, settings.identity, bound)
    _log.info("cluster %s by %s", credentials.server, credentials.source)
    api = ApiClient(credentials, user_agent=f"fairbind/{__version__}")
    try:
        await run_operator(
            settings,
            credentials=credentials,
            api=api,
            observer=metrics,
            health=health,
            stop=stopping.requested,
            reinstall_signals=stopping.install,
        )
    finally:
        await web.stop()
        await api.close()
    _log.info("stopped")


class StopSignals:
    """SIGTERM and SIGINT: the first asks for an orderly end, the second ends the process at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.requested = asyncio.Event()

    def install(self) -> None:
        """Take the signals, also back from somebody who took them from us."""
        for number in STOP_SIGNALS:
            self._loop.add_signal_handler(number, self._receive, number)

    def _receive(self, number: signal.Signals) -> None:
        if self.requested.is_set():
            _log.warning("%s again: ending at once", number.name)
            logging.shutdown()
            os._exit(SIGNAL_EXIT_BASE + number)
        _log.info("%s: finishing the bindings in flight", number.name)
        self.requested.set()


def _find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where uvloop exists: a request costs a fifth less (docs/benchmarks)."""
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - it is not installed on Windows

    return uvloop.new_event_loop
