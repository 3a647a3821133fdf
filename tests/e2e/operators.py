"""``fairbind operator`` as a child process, looked at from outside: probes, metrics, log, signals."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
import signal
import ssl
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from e2e.waiting import PATIENCE_SECONDS, wait_for
from localplane import processes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from e2e.api import Api, Json

PROGRAM = Path(sys.executable).with_name("fairbind")
NAMESPACE = "fairbind-system"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
LEASE = f"{LEASES}/fairbind"
SERVICE_ACCOUNT = "fairbind"
PAGE_SECONDS = 60.0
PAGES = re.compile(r"metrics on https?://(\S+)/metrics")


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the metrics page."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """One scrape. Names are the samples' own: ``..._total``, ``..._bucket``, ``..._count``.

    Only the lines that somebody asks for are parsed: a page is long, and tests look often.
    """

    text: str
    _samples: dict[str, list[Sample]] = field(default_factory=dict, init=False, repr=False)

    def select(self, name: str, **labels: str) -> list[Sample]:
        """Return the samples of a name that carry these labels (and maybe more)."""
        if name not in self._samples:
            lines = [line for line in self.text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
            families = text_string_to_metric_families("\n".join([*lines, ""]))
            self._samples[name] = [
                Sample(line.name, line.labels, line.value) for family in families for line in family.samples
            ]
        return [
            sample
            for sample in self._samples[name]
            if all(sample.labels.get(key) == text for key, text in labels.items())
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the one sample with these labels, None when there is none; fail when there are more."""
        found = self.select(name, **labels)
        assert len(found) <= 1, f"{len(found)} samples of {name} {labels}"
        return found[0].value if found else None

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with these labels."""
        return sum(sample.value for sample in self.select(name, **labels))


@dataclass(slots=True)
class Operator:
    """A running (or ended) operator."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    _address: str = field(default="", init=False, repr=False)
    _fingerprint: str = field(default="", init=False, repr=False)
    _pool: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(retries=False), repr=False)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    @property
    def address(self) -> str:
        """Where its pages are; waits until its log says it."""
        return wait_for(self._find_address, describe="the log to say where the metrics are")

    def _find_address(self) -> str:
        if not self._address and (found := PAGES.search(self.log.read_text(encoding="utf-8"))):
            self._address = found[1]
        return self._address

    @property
    def pages(self) -> str:
        """The URL of its pages, without a slash at the end."""
        return f"{'https' if self._fingerprint else 'http'}://{self.address}"

    def trust_certificate(self) -> None:
        """Speak HTTPS from now on, with who has the certificate that the operator made itself and shows now."""
        host, _, port = self.address.rpartition(":")
        shown = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port)), timeout=PAGE_SECONDS))
        self._fingerprint = hashlib.sha256(shown).hexdigest()
        self._pool = self.make_pool()

    def make_pool(self, **options: Any) -> urllib3.PoolManager:
        """Return connections to its pages for others than this process's own use; the caller closes them."""
        if self._fingerprint:
            # One context for all connections: urllib3 would make one for each and read the system's authorities.
            trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
            options |= {"assert_fingerprint": self._fingerprint, "ssl_context": trusting}
        return urllib3.PoolManager(retries=False, **options)

    def fetch(self, path: str, **headers: str) -> tuple[int, str]:
        """Return status and text of a page; (0, reason) when it cannot be reached."""
        if not self._find_address():
            return 0, "it does not listen yet"
        try:
            answer = self._pool.request("GET", f"{self.pages}{path}", headers=headers, timeout=PAGE_SECONDS)
        except urllib3.exceptions.HTTPError as error:
            return 0, str(error)
        return answer.status, answer.data.decode()

    def metrics(self) -> Metrics:
        """Scrape and parse the metrics."""
        status, text = self.fetch("/metrics")
        assert status == 200, f"{self.name} answers {status} to /metrics: {text[:200]}"
        return Metrics(text)

    def is_ready(self) -> bool:
        """Whether /readyz says so."""
        return self.fetch("/readyz")[0] == 200

    def is_leader(self) -> bool:
        """Whether the operator says that it leads."""
        status, text = self.fetch("/metrics")
        return status == 200 and Metrics(text).value("fairbind_leader") == 1.0

    def wait_ready(self, timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until it is ready; fail at once when it ends instead."""
        deadline = time.monotonic() + timeout
        while not self.is_ready():
            assert self.is_running, f"{self.name} ended with {self.process.returncode}:\n{self.read_log()}"
            assert time.monotonic() < deadline, f"{self.name} is not ready after {timeout} s:\n{self.read_log()}"
            time.sleep(0.05)

    def wait_ended(self, timeout: float = PATIENCE_SECONDS) -> int:
        """Wait until the process has ended by itself and return its exit status (negative: the signal)."""
        return self.process.wait(timeout=timeout)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def freeze(self) -> None:
        """Stop the process in its tracks (SIGSTOP)."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        processes.kill(self.process)

    def stop(self, timeout: float = 30.0) -> int:
        """Ask it to end (SIGTERM) and return the exit status; kill it when it does not."""
        if self.is_running:
            self.thaw()
        processes.terminate(self.process, timeout)
        return self.process.returncode

    def read_log(self, lines: int = 40) -> str:
        """Return the end of its log."""
        return processes.read_tail(self.log, lines)

    def close(self) -> None:
        """Kill it if it still runs and close our connections to it."""
        self.kill()
        self._pool.clear()


def format_now() -> str:
    """Return the time as leases have it."""
    return f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def make_lease_spec(holder: str) -> Json:
    """Return the spec of a lease that somebody holds for a minute from now on."""
    now = format_now()
    return {"holderIdentity": holder, "leaseDurationSeconds": 60, "acquireTime": now, "renewTime": now}


def read_term(api: Api) -> tuple[str, int]:
    """Return who holds the lease and how often it has changed hands, as it does when the machine stands still."""
    spec = api.get(LEASE)["spec"]
    return str(spec.get("holderIdentity") or ""), int(spec.get("leaseTransitions") or 0)


def start_operator(
    kubeconfig: Path, log: Path, arguments: Sequence[str] = (), *, environment: Mapping[str, str] | None = None
) -> Operator:
    """Start ``fairbind operator`` on a port that it chooses; it dies with this process. It is not ready yet."""
    fixed = [f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}", "--metrics-address=127.0.0.1:0"]
    everything = {**os.environ, **(environment or {})}
    process = processes.spawn([PROGRAM, "operator", *fixed, *arguments], log, environment=everything)
    return Operator(log.stem, process, log)
