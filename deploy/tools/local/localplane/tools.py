"""The control plane's binaries and those wanted beside it, built from pinned Go modules and cached outside the tree.

A binary's place in the cache is named after all that decides its content (pins, our own code, flags, platform), so
a second clone builds nothing and a changed pin never meets an old binary. Builds wait for each other by a lock; a
binary appears under its name only when it is whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from localplane import processes
from localplane.additions import add_files
from localplane.failures import ToolError, explain_failure
from localplane.toolchain import ensure_go

MODULES = Path(__file__).parent.parent / "go"
KUBERNETES_VERSION = (1, 37, 0)
OLDER_KUBERNETES = {"1.34": (1, 34, 4)}
"""Older control planes on which fairbind is tested too: built only when a test asks for one."""
OLDER_PROGRAMS = ("kube-apiserver", "kube-controller-manager")
"""What an older control plane has of its own; etcd and the clients are the same."""
MEASURED_CORES = 2


@dataclass(frozen=True, slots=True)
class Tool:
    """A program: the module that pins it, its package, how long a cold build took on two cores."""

    name: str
    module: str
    package: str
    build_seconds: int


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("etcd", "kubernetes", "go.etcd.io/etcd/server/v3", 40),
        Tool("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", 250),
        Tool("kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", 90),
        Tool("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", 15),
        Tool("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", 30),
        Tool("filter-oracle", "oracle", ".", 15),
        Tool("scheduling-exam", "exam", ".", 100),
        Tool("kwok", "cluster", "sigs.k8s.io/kwok/cmd/kwok", 150),
        Tool("helm", "cluster", "helm.sh/helm/v4/cmd/helm", 40),
        Tool("kind", "kind", "sigs.k8s.io/kind", 15),
        Tool("promtool", "prometheus", "github.com/prometheus/prometheus/cmd/promtool", 120),
        Tool("prometheus", "prometheus", "github.com/prometheus/prometheus/cmd/prometheus", 60),
        Tool("actionlint", "workflows", "github.com/rhysd/actionlint/cmd/actionlint", 20),
        Tool("jobset", "jobset", "sigs.k8s.io/jobset", 90),
        Tool("lws", "lws", "sigs.k8s.io/lws/cmd", 90),
        Tool("kuberay", "kuberay", "github.com/ray-project/kuberay/ray-operator", 90),
        Tool("trainer", "trainer", "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager", 60),
        Tool("mpi-operator", "mpi-operator", "github.com/kubeflow/mpi-operator/cmd/mpi-operator", 90),
        Tool("spark-operator", "spark-operator", "github.com/kubeflow/spark-operator/v2/cmd/operator", 120),
        Tool("karpenter", "karpenter", "sigs.k8s.io/karpenter/kwok", 120),
        Tool("vc-scheduler", "volcano", "volcano.sh/volcano/cmd/scheduler", 120),
    )
}
DEFAULT = ("etcd", "kube-apiserver", "kube-controller-manager", "kwok", "helm")
FRAMEWORKS = ("jobset", "lws", "kuberay", "trainer", "mpi-operator", "spark-operator")
"""Operators of others that make groups of pods, each from a module of ours with its name: `make framework-tools`."""
USUAL = tuple(name for name in TOOLS if name not in {"scheduling-exam", "karpenter", "vc-scheduler", *FRAMEWORKS})
"""What `make tools` builds: all but what no test of CI runs."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Where the binaries are. pinned: which module each comes from."""

    folders: Mapping[str, Path]
    pinned: Mapping[str, Tool] = field(default_factory=lambda: TOOLS)

    def path(self, name: str) -> Path:
        """Return the path of a binary; raise ToolError when it has not been built."""
        tool = self.pinned.get(name)
        if tool is None:
            raise ToolError(f"there is no tool {name!r}; there are {', '.join(TOOLS)}")
        path = self.folders[tool.module] / name
        if not path.exists():
            raise ToolError(f"{name} has not been built: run `make tools`")
        return path


def print_line(text: str) -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


def find_cache() -> Path:
    """Return the folder for what is kept between clones: FAIRBIND_CACHE, or the user's cache folder."""
    if "FAIRBIND_CACHE" in os.environ:
        return Path(os.environ["FAIRBIND_CACHE"]).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "fairbind"


def ensure_tools(
    names: Iterable[str] = DEFAULT,
    report: Callable[[str], None] = print_line,
    *,
    kubernetes: str | None = None,
    cache: Path | None = None,
) -> Tools:
    """Return the binaries; build those that are not in the cache, reporting what is done and how long it may take.

    kubernetes: the minor version of an older control plane, "1.34"; None for the one that everything else runs on.
    cache: another folder than the one that clones share, as for a release, which trusts nothing that lies there.
    Raises ToolError with one line that says what is missing and what to do.
    """
    cache = cache or find_cache()
    pinned = find_pins(kubernetes)
    modules = sorted({tool.module for tool in pinned.values()})
    tools = Tools({module: _compute_folder(cache, module) for module in modules}, pinned)
    unknown = sorted(set(names) - set(TOOLS))
    if unknown:
        raise ToolError(f"there is no tool {unknown[0]!r}; there are {', '.join(TOOLS)}")
    missing = [tool for name, tool in pinned.items() if name in set(names) and not _is_built(tools, tool)]
    if missing:
        try:
            _build_all(tools, missing, cache, report)
        except OSError as error:  # the folders, the lock, the rename
            raise ToolError(explain_failure(f"building into {cache}", str(error))) from error
    return tools


def find_pins(kubernetes: str | None = None) -> Mapping[str, Tool]:
    """Return all programs with the modules that pin them, for an older control plane when one is named.

    Raises ToolError for a version that is not pinned.
    """
    if kubernetes is None:
        return TOOLS
    if kubernetes not in OLDER_KUBERNETES:
        raise ToolError(f"Kubernetes {kubernetes!r} is not pinned; older ones are {', '.join(OLDER_KUBERNETES)}")
    older = {name: replace(TOOLS[name], module=f"kubernetes-{kubernetes}") for name in OLDER_PROGRAMS}
    return {**TOOLS, **older}


def find_module_folder(module: str, path: str, report: Callable[[str], None] = print_line) -> Path:
    """Return where the sources of a Go module are that one of ours pins; download them first if they are not there.

    module: ours, by its folder's name. path: the other one's, such as k8s.io/kubernetes.
    """
    go = ensure_go(_find_go_line(module), find_cache(), report)
    found = subprocess.run(
        [go, "mod", "download", "-json", path],
        cwd=MODULES / module,
        env=_compute_environment(go),
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode != 0:
        raise ToolError(explain_failure(f"downloading {path}", found.stdout + found.stderr))
    return Path(json.loads(found.stdout)["Dir"])


def _is_built(tools: Tools, tool: Tool) -> bool:
    return (tools.folders[tool.module] / tool.name).exists()


def _build_all(tools: Tools, missing: list[Tool], cache: Path, report: Callable[[str], None]) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    go = None
    with one_build_at_a_time(cache / "tools.lock", report):
        waiting = [tool for tool in missing if not _is_built(tools, tool)]  # another process may have built them
        for number, tool in enumerate(waiting, start=1):
            go = go or ensure_go(_find_go_line(tool.module), cache, report)
            _build(go, tool, tools.folders[tool.module], f"{number}/{len(waiting)}", report)


@contextlib.contextmanager
def one_build_at_a_time(path: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock that all builds of the same things take, of whatever process. path: its file. report: of a wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        waiting_since = time.monotonic()
        reported = 0.0
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= reported + processes.REPORT_INTERVAL_SECONDS:
                    reported = time.monotonic()
                    report(f"another build makes the same; waiting for it, {reported - waiting_since:.0f} s so far")
                time.sleep(0.2)
            else:
                break
        yield


def _build(go: Path, tool: Tool, folder: Path, position: str, report: Callable[[str], None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{tool.name}.partial"
    log = folder.parent / f"{tool.name}.log"
    log.unlink(missing_ok=True)
    added = add_files(MODULES / tool.module, folder.parent, lambda path: find_module_folder(tool.module, path, report))
    argv: list[str | Path] = [go, "build", *_compute_flags(tool.module), *added, "-o", partial, tool.package]
    expectation = tool.build_seconds * MEASURED_CORES / max(1, os.cpu_count() or 1)
    cores = f"{os.cpu_count()} cores" if os.cpu_count() != 1 else "1 core"
    line = f"building {tool.name} {position}, about {_describe_duration(expectation)} on {cores} if idle"
    started = time.monotonic()
    report(line)
    settings, module = _compute_environment(go), MODULES / tool.module

    def say(seconds: float) -> None:
        report(f"{line}; {_describe_duration(seconds)} so far{_describe_downloads(log)}")

    if processes.run_aloud(argv, log, say, environment=settings, directory=module) != 0:
        partial.unlink(missing_ok=True)
        raise ToolError(
            explain_failure(f"building {tool.name}", log.read_text(errors="replace"), folder) + f"; see {log}"
        )
    partial.rename(folder / tool.name)
    report(f"built {tool.name} in {_describe_duration(time.monotonic() - started)}")


def _compute_folder(cache: Path, module: str) -> Path:
    digest = hashlib.sha256()
    for path in find_sources(MODULES / module):
        digest.update(path.read_bytes())
    digest.update("\0".join([*_compute_flags(module), sys.platform, platform.machine()]).encode())
    return cache / "tools" / digest.hexdigest()[:16] / "bin"


def find_sources(folder: Path) -> list[Path]:
    """Return what decides what a module's programs are: its pins, and the code of a program of our own."""
    return [folder / "go.mod", folder / "go.sum", *sorted(folder.rglob("*.go"))]


def _compute_flags(module: str) -> list[str]:
    """Return what decides how the programs of a module are built.

    Without the version variables Kubernetes' programs call themselves v0.0.0-master; without their tags Prometheus'
    consist mostly of the service discoveries of clouds.
    """
    plain = ["-trimpath", "-buildvcs=false"]
    if module == "prometheus":
        return [*plain, "-ldflags=-s -w", "-tags=remove_all_sd,enable_kubernetes_sd"]
    if module in {"karpenter", "volcano", *FRAMEWORKS}:
        return [*plain, "-ldflags=-s -w"]
    numbers = OLDER_KUBERNETES.get(module.removeprefix("kubernetes-"), KUBERNETES_VERSION)
    major, minor, _ = numbers
    version = "v" + ".".join(str(number) for number in numbers)
    variables = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    assignments = " ".join(f"-X {name}={text}" for name, text in variables.items())
    return [*plain, f"-ldflags=-s -w {assignments}"]


def _compute_environment(go: Path) -> dict[str, str]:
    """The user's proxies, mirrors and caches count; other settings that change what is built do not."""
    ours = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    foreign = {"GOOS", "GOARCH", "GOROOT", "GO111MODULE", "GOEXPERIMENT", "GOBIN"}
    inherited = {name: text for name, text in os.environ.items() if name not in foreign}
    return {**inherited, **ours, "PATH": f"{go.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def _find_go_line(module: str) -> tuple[int, int]:
    match = re.search(r"^go (\d+)\.(\d+)", (MODULES / module / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise ToolError(f"{MODULES / module / 'go.mod'} has no go line")
    return int(match[1]), int(match[2])


def _describe_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _describe_downloads(log: Path) -> str:
    """Modules are fetched before anything compiles; say so, because the expectation is for compiling."""
    lines = log.read_text(errors="replace").splitlines()
    is_downloading = bool(lines) and lines[-1].startswith("go: downloading")
    return f", downloading modules ({len(lines)})" if is_downloading else ""
