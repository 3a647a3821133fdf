"""Who we are for the API server, and where it is.

Everything that a kubeconfig or a pod's service account can say is understood by the loader of the `kubernetes` package:
token files, exec plugins, client certificates, merged files. We take its result, and look every minute whether files
have changed or what a plugin gave out is about to end; after a 401 everything is read again at once.
The package is imported only here and only when it is needed, because that takes a third of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from fairbind.kube.client.errors import PermanentClusterError

RELOAD_SECONDS = 60.0
"""How long a loaded token is taken as it is. Kubelet renews a pod's token long before its end."""
RELOAD_AFTER_401_SECONDS = 2.0
"""A refused token is read again at most this often: a plugin can be slow, and a refusal can last."""
RENEW_PATIENCE_SECONDS = 2.0
"""How long a refused request waits for the renewal. A plugin that hangs must not keep bindings or the lease waiting."""

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"
"""Of a context that names none."""

_log = logging.getLogger(__name__)
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """One reading of the credentials: what it takes to reach the API server and to be let in.

    server: URL without a trailing slash; it may have a path. authorization: the whole header, or None.
    Paths are those of PEM files; None where the kubeconfig has none. proxy: URL of an HTTP proxy for this server.
    fingerprint: of the PEM files' contents, which are exchanged in place when certificates are renewed.
    """

    server: str
    authorization: str | None
    ca_path: Path | None
    certificate_path: Path | None
    private_key_path: Path | None
    verifies_server: bool
    tls_server_name: str | None
    proxy: str | None
    fingerprint: str


class AccessSource(Protocol):
    """Where credentials are read from."""

    name: str

    def load(self, *, again: bool) -> ClusterAccess:
        """Return the present access; may block. again: what a plugin gave out before is not good enough.

        Raises PermanentClusterError.
        """


class Credentials:
    """The present access to one cluster, renewed behind the caller's back. One event loop uses it."""

    def __init__(self, source: AccessSource, *, clock: Clock = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self.source = source.name
        self.access = source.load(again=True)
        self.ssl_context = _make_ssl_context(self.access, self.source)
        self._loaded_at = clock()
        self._reloading: asyncio.Task[None] | None = None

    @property
    def server(self) -> str:
        """URL of the API server, without a trailing slash."""
        return self.access.server

    async def authorization(self) -> str | None:
        """Return the present Authorization header. Looks for a new one in the background once the present is old."""
        if self._clock() - self._loaded_at > RELOAD_SECONDS:
            self._start_reload(again=False)
        return self.access.authorization

    async def renew(self) -> None:
        """Read everything again, because the server refused what we have; not more often than sensible. Never raises.

        Returns after `RENEW_PATIENCE_SECONDS` at the latest; what takes longer goes on in the background.
        """
        if self._reloading is None and self._clock() - self._loaded_at < RELOAD_AFTER_401_SECONDS:
            return
        await asyncio.wait({self._start_reload(again=True)}, timeout=RENEW_PATIENCE_SECONDS)

    def _start_reload(self, *, again: bool) -> asyncio.Task[None]:
        if self._reloading is None:
            self._reloading = asyncio.get_running_loop().create_task(
                self._reload(again=again), name="reload-credentials"
            )
        return self._reloading

    async def _reload(self, *, again: bool) -> None:
        try:
            access = await asyncio.to_thread(self._source.load, again=again)
            if access.fingerprint != self.access.fingerprint:
                self.ssl_context = _make_ssl_context(access, self.source)
            self.access = access
        except PermanentClusterError as error:
            # What we have may still work; if it does not, the calls say so.
            _log.warning("Credentials could not be read again: %s", error)
        finally:
            self._loaded_at = self._clock()
            self._reloading = None


def load_credentials(kubeconfig: Path | None = None, *, context: str | None = None) -> Credentials:
    """Find and read the credentials: the given kubeconfig, else $KUBECONFIG, else the pod's own, else ~/.kube/config.

    context: the name of a context of the kubeconfig; None: its current one. With a name the pod's own are left out.
    Raises PermanentClusterError, one line with the file and what is wrong with it.
    """
    paths = _find_kubeconfigs(kubeconfig, context)
    return Credentials(KubeconfigSource(paths, context=context) if paths else ServiceAccountSource())


def read_context_namespace(kubeconfig: Path | None = None, *, context: str | None = None) -> str:
    """Return the namespace of the context that `load_credentials` takes, or of the pod. Raises as it does."""
    paths = _find_kubeconfigs(kubeconfig, context)
    if not paths:
        return (SERVICE_ACCOUNT_FOLDER / "namespace").read_text(encoding="ascii").strip()
    for path in paths:
        _read_yaml(path)
    from kubernetes import config  # noqa: PLC0415 - slow to import

    with _reported_by_loader(_name_kubeconfigs(paths)):
        contexts, active = config.list_kube_config_contexts(os.pathsep.join(map(str, paths)))
        chosen = active if context is None else next((one for one in contexts if one["name"] == context), {})
        return str((chosen.get("context") or {}).get("namespace") or DEFAULT_NAMESPACE)


def _find_kubeconfigs(kubeconfig: Path | None, context: str | None) -> tuple[Path, ...]:
    """Return the kubeconfigs, or none where the pod's service account is to be taken."""
    if kubeconfig is not None:
        return (kubeconfig,)
    if merged := os.environ.get("KUBECONFIG"):
        paths = tuple(Path(name).expanduser() for name in merged.split(os.pathsep) if name)
        found = tuple(path for path in paths if path.exists())
        if not found:
            raise PermanentClusterError(f"kubeconfig {merged}: no such file (from the environment variable KUBECONFIG)")
        return found
    if context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return ()
    default = Path("~/.kube/config").expanduser()
    if not default.exists():
        raise PermanentClusterError(
            f"no cluster: not in a pod, no --kubeconfig, KUBECONFIG is not set, and {default} does not exist"
        )
    return (default,)


def _name_kubeconfigs(paths: tuple[Path, ...]) -> str:
    return "kubeconfig " + os.pathsep.join(str(path) for path in paths)


class KubeconfigSource:
    """One kubeconfig, or several that are merged as kubectl does."""

    def __init__(self, paths: tuple[Path, ...], *, context: str | None = None) -> None:
        """context: None takes the current one."""
        self._paths = paths
        self._context = context
        self.name = _name_kubeconfigs(paths)
        self._settings: Any = None
        self._uses_plugin = False

    def load(self, *, again: bool) -> ClusterAccess:
        """Return the access of the context."""
        if again or self._settings is None or not self._uses_plugin:
            self._load_anew()
        else:
            with _reported_by_loader(self.name):
                self._settings.get_api_key_with_prefix("BearerToken")  # runs the plugin when its token is about to end
        return _make_access(self._settings, self.name)

    def _load_anew(self) -> None:
        contents = [_read_yaml(path) for path in self._paths]
        self._uses_plugin = any(_uses_plugin(content) for content in contents)
        from kubernetes import client, config  # noqa: PLC0415 - slow to import

        settings = client.Configuration()
        names = os.pathsep.join(str(path) for path in self._paths)
        with _reported_by_loader(self.name):
            config.load_kube_config(
                config_file=names, context=self._context, client_configuration=settings, persist_config=False
            )
        self._settings = settings


class ServiceAccountSource:
    """What kubelet puts into a pod."""

    name = "the pod's service account"

    def __init__(self, folder: Path = SERVICE_ACCOUNT_FOLDER) -> None:
        """folder: where the token and the certificate authority are mounted."""
        self._folder = folder

    def load(self, *, again: bool) -> ClusterAccess:  # noqa: ARG002 - a file is always read again
        """Return the access of the pod's service account."""
        from kubernetes import client  # noqa: PLC0415 - slow to import
        from kubernetes.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415 - slow to import

        settings = client.Configuration()
        loader = InClusterConfigLoader(
            token_filename=str(self._folder / "token"),
            cert_filename=str(self._folder / "ca.crt"),
            try_refresh_token=False,
        )
        with _reported_by_loader(self.name):
            loader.load_and_set(settings)
        return _make_access(settings, self.name)


MOST_KUBECONFIG_BYTES = 4 << 20
"""A kubeconfig with certificates of a hundred clusters is smaller."""


def _read_yaml(path: Path) -> dict[str, Any]:
    """Return what is in a kubeconfig; says more clearly than the loader why a file cannot be one."""
    import yaml  # noqa: PLC0415 - it comes with the kubernetes package and is as late

    try:
        with path.open("rb") as file:
            text = file.read(MOST_KUBECONFIG_BYTES + 1)
        if len(text) > MOST_KUBECONFIG_BYTES:
            raise PermanentClusterError(f"kubeconfig {path}: larger than {MOST_KUBECONFIG_BYTES >> 20} MiB")
        content = yaml.safe_load(text)
    except IsADirectoryError:
        raise PermanentClusterError(f"kubeconfig {path}: is a directory") from None
    except FileNotFoundError:
        raise PermanentClusterError(f"kubeconfig {path}: no such file") from None
    except OSError as error:
        raise PermanentClusterError(f"kubeconfig {path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PermanentClusterError(f"kubeconfig {path}: not YAML: {_one_line(error)}") from None
    if not isinstance(content, dict):
        raise PermanentClusterError(f"kubeconfig {path}: not a kubeconfig: its top level is no mapping")
    return content


def _uses_plugin(content: dict[str, Any]) -> bool:
    users = content.get("users") or []
    try:
        return any(not {"exec", "auth-provider"}.isdisjoint(entry["user"] or {}) for entry in users)
    except (TypeError, KeyError):
        return False  # malformed; the loader says how


def _make_access(settings: Any, source: str) -> ClusterAccess:
    """settings: the loader's Configuration."""
    parts = urlsplit(settings.host)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise PermanentClusterError(f"{source}: server {settings.host!r} is not an http or https URL")
    authorization = settings.api_key.get("BearerToken")
    proxy = settings.proxy or None
    if proxy is not None and proxy_bypass(parts.hostname):
        proxy = None
    files = [Path(name) if name else None for name in (settings.ssl_ca_cert, settings.cert_file, settings.key_file)]
    return ClusterAccess(
        server=settings.host.rstrip("/"),
        authorization=_clean_header(authorization) if authorization else None,
        ca_path=files[0],
        certificate_path=files[1],
        private_key_path=files[2],
        verifies_server=bool(settings.verify_ssl),
        tls_server_name=settings.tls_server_name or None,
        proxy=proxy,
        fingerprint=_compute_fingerprint(files, source),
    )


def _compute_fingerprint(files: list[Path | None], source: str) -> str:
    digest = hashlib.sha256()
    for path in files:
        try:
            digest.update(hashlib.sha256(path.read_bytes() if path else b"").digest())
        except OSError as error:
            raise PermanentClusterError(f"{source}: {path}: {error.strerror or error}") from None
    return digest.hexdigest()


def _clean_header(authorization: str) -> str:
    """Files end in a newline, headers must not hold one; some proxies know only the capitalised scheme."""
    scheme, _, credential = authorization.partition(" ")
    return f"{'Bearer' if scheme.lower() == 'bearer' else scheme} {credential.strip()}"


def _make_ssl_context(access: ClusterAccess, source: str) -> ssl.SSLContext | None:
    """Return None for a server without TLS."""
    if not access.server.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cafile=access.ca_path)
    except (OSError, ssl.SSLError) as error:
        raise PermanentClusterError(f"{source}: certificate authority {access.ca_path}: {_one_line(error)}") from None
    if not access.verifies_server:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.certificate_path is not None:
        try:
            context.load_cert_chain(access.certificate_path, access.private_key_path)
        except (OSError, ssl.SSLError) as error:
            raise PermanentClusterError(f"{source}: client certificate and key: {_one_line(error)}") from None
    return context


@contextlib.contextmanager
def _reported_by_loader(source: str) -> Iterator[None]:
    """Turn every way in which the loader complains into one PermanentClusterError.

    A plugin that failed it tells the root logger only, and goes on without credentials.
    """
    complaints: list[str] = []
    root = logging.getLogger()
    placeholder = logging.NullHandler()  # without any handler, logging.error() would set up one that prints
    thread = threading.get_ident()

    def collect(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return True
        complaints.append(record.getMessage())
        return False

    root.addFilter(collect)
    root.addHandler(placeholder)
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever a malformed file leads to in there
        kind = "malformed: " if isinstance(error, (TypeError, AttributeError, KeyError)) else ""
        raise PermanentClusterError(f"{source}: {kind}{_one_line(error)}") from None
    finally:
        root.removeHandler(placeholder)
        root.removeFilter(collect)
    if complaints:
        raise PermanentClusterError(f"{source}: {_one_line(complaints[0])}")


def _one_line(error: object) -> str:
    return " ".join(str(error).split()) or type(error).__name__
