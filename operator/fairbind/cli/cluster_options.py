"""Options of the commands that look at a cluster, or at a file that was made of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from fairbind.cli.options import Command

DEFAULT_NAMESPACE = "fairbind-system"
DEFAULT_SCHEDULER_NAME = "fairbind"
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def find_default_namespace() -> str:
    """Return the namespace that this pod runs in, or the one that the chart is installed to by default."""
    try:
        return SERVICE_ACCOUNT_NAMESPACE.read_text(encoding="ascii").strip() or DEFAULT_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return DEFAULT_NAMESPACE


def _check_name(limit: int, pattern: re.Pattern[str]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return a callback that refuses what is no name, such as an empty one; None: the option is not given."""

    def check(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
        if name is not None and (len(name) > limit or not pattern.fullmatch(name)):
            raise click.BadParameter(f"{name!r} is not a name that Kubernetes takes")
        return name

    return check


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
check_namespace = _check_name(63, re.compile(_LABEL))
check_scheduler_name = _check_name(253, re.compile(rf"{_LABEL}(\.{_LABEL})*"))


file_argument = click.argument("file", required=False)

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    envvar="FAIRBIND_KUBECONFIG",
    show_envvar=True,
    help="File that says how to reach the cluster. Without it: KUBECONFIG, the pod's service account, ~/.kube/config.",
)


def namespace_option(about: str) -> Callable[[Command], Command]:
    """Return the option --namespace with this help."""
    return click.option(
        "--namespace",
        callback=check_namespace,
        envvar=["FAIRBIND_NAMESPACE", "POD_NAMESPACE"],
        default=find_default_namespace,
        show_default=f"the pod's own, else {DEFAULT_NAMESPACE}",
        show_envvar=True,
        help=about,
    )


def scheduler_name_option(about: str) -> Callable[[Command], Command]:
    """Return the option --scheduler-name with this help."""
    return _make_scheduler_name_option(about, default=DEFAULT_SCHEDULER_NAME, show_default=True)


def listed_scheduler_name_option(about: str) -> Callable[[Command], Command]:
    """Return the option --scheduler-name of a command that may read a file, which names a scheduler itself."""
    return _make_scheduler_name_option(
        about, default=None, show_default=f"what FILE says, else {DEFAULT_SCHEDULER_NAME}"
    )


def _make_scheduler_name_option(about: str, **attributes: Any) -> Callable[[Command], Command]:
    return click.option(
        "--scheduler-name",
        callback=check_scheduler_name,
        envvar="FAIRBIND_SCHEDULER_NAME",
        show_envvar=True,
        help=about,
        **attributes,
    )


context_option = click.option(
    "--context", metavar="NAME", help="Context of the kubeconfig; without it the current one."
)
own_namespace_option = namespace_option("Namespace that the operator runs in; its pods belong to no tenant.")


def _setting(name: str, *names: str, **attributes: Any) -> Callable[[Command], Command]:
    """Return an option that may also be set by the variable FAIRBIND_NAME. names: further ones, as `click.option`."""
    variable = "FAIRBIND_" + name.removeprefix("--").replace("-", "_").upper()
    settings = {"envvar": variable, "show_envvar": True, "show_default": "default" in attributes, **attributes}
    return click.option(name, *names, **settings)


show_taints_option = _setting(
    "--show-taints",
    is_flag=True,
    help="Name keys and values of taints to the owners of waiting pods. They may say what other tenants keep to "
    "themselves, so without it a message only counts the nodes with a taint.",
)


def gate_options(function: Command) -> Command:
    """Add what gate mode needs."""
    options = (
        _setting(
            "--mode",
            type=click.Choice(["bind", "gate", "extender"]),
            default="bind",
            help="bind: fairbind places pods itself. gate: in addition, pods of another scheduler wait behind the "
            "scheduling gate fairbind.io/turn, which fairbind opens when their turn has come. extender: in addition, "
            "kube-scheduler asks fairbind whether it is the turn of its pods.",
        ),
        _setting(
            "--gate-scheduler-name",
            metavar="NAME",
            callback=check_scheduler_name,
            default="default-scheduler",
            help="In gate mode, the scheduler whose pods take turns.",
        ),
        _setting(
            "--max-ungated",
            metavar="PODS",
            type=click.IntRange(1, 10_000),
            default=200,
            help="In gate mode, how many pods may have an open gate and no node yet.",
        ),
        _setting(
            "--ungated-timeout",
            metavar="SECONDS",
            type=click.FloatRange(1.0, 3600.0),
            default=30.0,
            help="In gate mode, for how long a pod whose gate is open keeps its reservation without being bound.",
        ),
        _setting(
            "--gate-placement",
            type=click.Choice(["policy", "node"]),
            default="policy",
            help="In gate mode, whether pods are narrowed to nodes only where the policy decides by class, or always.",
        ),
        _setting(
            "--max-scale-up",
            metavar="PODS",
            type=click.IntRange(0, 1_000),
            default=0,
            help="In gate mode, how many pods of a tenant that fit nowhere are shown to autoscalers by an open gate.",
        ),
    )
    return _add(options, function)


def _check_names(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(check_scheduler_name(context, parameter, name) for name in names)


def extender_options(function: Command) -> Command:
    """Add what extender mode needs."""
    options = (
        _setting(
            "--extender-scheduler-name",
            "extender_scheduler_names",
            metavar="NAME",
            multiple=True,
            callback=_check_names,
            default=("default-scheduler",),
            help="In extender mode, the scheduler whose pods take turns. May be repeated.",
        ),
        _setting(
            "--extender-address",
            metavar="HOST:PORT",
            default=":8443",
            help="In extender mode, where kube-scheduler is answered.",
        ),
        _setting(
            "--extender-tls",
            metavar="FOLDER",
            type=click.Path(path_type=Path),
            help="In extender mode, the folder with tls.crt and tls.key, with which kube-scheduler is answered, and "
            "ca.crt, the authorities that sign its client certificate.",
        ),
        _setting(
            "--extender-client-name",
            "extender_client_names",
            metavar="NAME",
            multiple=True,
            default=("system:kube-scheduler",),
            help="In extender mode, the common name of the client certificate of one who may ask. May be repeated.",
        ),
        _setting(
            "--extender-service",
            metavar="NAME",
            callback=check_namespace,
            help="In extender mode, the Service without selector that the leader makes lead to itself.",
        ),
        _setting(
            "--extender-pod-ip",
            metavar="ADDRESS",
            envvar=["FAIRBIND_EXTENDER_POD_IP", "POD_IP"],
            help="The address of this replica in that Service.",
        ),
        _setting(
            "--max-turns",
            metavar="PODS",
            type=click.IntRange(1, 10_000),
            default=200,
            help="In extender mode, how many pods may have their turn and no node yet.",
        ),
        _setting(
            "--turn-timeout",
            metavar="SECONDS",
            type=click.FloatRange(1.0, 3600.0),
            default=10.0,
            help="In extender mode, for how long a pod has its turn.",
        ),
    )
    return _add(options, function)


def _add(options: Sequence[Callable[[Command], Command]], function: Command) -> Command:
    for option in reversed(options):
        function = option(function)
    return function
