"""Options of the commands that look at a cluster, or at a file that was made of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from fairbind.cli.options import Command

DEFAULT_NAMESPACE = "fairbind-system"
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def find_default_namespace() -> str:
    """Return the namespace that this pod runs in, or the one that the chart is installed to by default."""
    try:
        return SERVICE_ACCOUNT_NAMESPACE.read_text(encoding="ascii").strip() or DEFAULT_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return DEFAULT_NAMESPACE


def _check_name(limit: int, pattern: re.Pattern[str]) -> Callable[[click.Context, click.Parameter, str], str]:
    def check(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
        if len(name) > limit or not pattern.fullmatch(name):
            raise click.BadParameter(f"{name!r} is not a name that Kubernetes takes")
        return name

    return check


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
check_namespace = _check_name(63, re.compile(_LABEL))
check_scheduler_name = _check_name(253, re.compile(rf"{_LABEL}(\.{_LABEL})*"))


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
    return click.option(
        "--scheduler-name",
        callback=check_scheduler_name,
        envvar="FAIRBIND_SCHEDULER_NAME",
        default="fairbind",
        show_default=True,
        show_envvar=True,
        help=about,
    )


context_option = click.option(
    "--context", metavar="NAME", help="Context of the kubeconfig; without it the current one."
)
own_namespace_option = namespace_option("Namespace that the operator runs in; its pods belong to no tenant.")


_NODE_OPTIONS = (
    click.option(
        "--gate-placement",
        type=click.Choice(["policy", "node"]),
        envvar="FAIRBIND_GATE_PLACEMENT",
        default="policy",
        show_default=True,
        show_envvar=True,
        help="In gate mode, whether pods are narrowed to nodes only where the policy decides by class, or always.",
    ),
    click.option(
        "--max-scale-up",
        metavar="PODS",
        type=click.IntRange(0, 1_000),
        envvar="FAIRBIND_MAX_SCALE_UP",
        default=0,
        show_default=True,
        show_envvar=True,
        help="In gate mode, how many pods of a tenant that fit nowhere are shown to autoscalers by an open gate.",
    ),
)
"""What gate mode asks about nodes: those that exist, and those that could be bought."""


def gate_options(function: Command) -> Command:
    """Add what gate mode needs."""
    options = (
        click.option(
            "--mode",
            type=click.Choice(["bind", "gate", "extender"]),
            envvar="FAIRBIND_MODE",
            default="bind",
            show_default=True,
            show_envvar=True,
            help="bind: fairbind places pods itself. gate: in addition, pods of another scheduler wait behind the "
            "scheduling gate fairbind.io/turn, which fairbind opens when their turn has come. extender: in addition, "
            "kube-scheduler asks fairbind whether it is the turn of its pods.",
        ),
        click.option(
            "--gate-scheduler-name",
            metavar="NAME",
            callback=check_scheduler_name,
            envvar="FAIRBIND_GATE_SCHEDULER_NAME",
            default="default-scheduler",
            show_default=True,
            show_envvar=True,
            help="In gate mode, the scheduler whose pods take turns.",
        ),
        click.option(
            "--max-ungated",
            metavar="PODS",
            type=click.IntRange(1, 10_000),
            envvar="FAIRBIND_MAX_UNGATED",
            default=200,
            show_default=True,
            show_envvar=True,
            help="In gate mode, how many pods may have an open gate and no node yet.",
        ),
        click.option(
            "--ungated-timeout",
            metavar="SECONDS",
            type=click.FloatRange(1.0, 3600.0),
            envvar="FAIRBIND_UNGATED_TIMEOUT",
            default=30.0,
            show_default=True,
            show_envvar=True,
            help="In gate mode, for how long a pod whose gate is open keeps its reservation without being bound.",
        ),
        *_NODE_OPTIONS,
    )
    return _add(options, function)


def _check_names(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(check_scheduler_name(context, parameter, name) for name in names)


_TURN_OPTIONS = (
    click.option(
        "--extender-service",
        metavar="NAME",
        callback=lambda context, parameter, name: name and check_namespace(context, parameter, name),
        envvar="FAIRBIND_EXTENDER_SERVICE",
        show_envvar=True,
        help="In extender mode, the Service without selector that the leader makes lead to itself.",
    ),
    click.option(
        "--extender-pod-ip",
        metavar="ADDRESS",
        envvar=["FAIRBIND_EXTENDER_POD_IP", "POD_IP"],
        show_envvar=True,
        help="The address of this replica in that Service.",
    ),
    click.option(
        "--max-turns",
        metavar="PODS",
        type=click.IntRange(1, 10_000),
        envvar="FAIRBIND_MAX_TURNS",
        default=200,
        show_default=True,
        show_envvar=True,
        help="In extender mode, how many pods may have their turn and no node yet.",
    ),
    click.option(
        "--turn-timeout",
        metavar="SECONDS",
        type=click.FloatRange(1.0, 3600.0),
        envvar="FAIRBIND_TURN_TIMEOUT",
        default=10.0,
        show_default=True,
        show_envvar=True,
        help="In extender mode, for how long a pod has its turn.",
    ),
)
"""What extender mode needs of the Service and of turns."""


def extender_options(function: Command) -> Command:
    """Add what extender mode needs."""
    options = (
        click.option(
            "--extender-scheduler-name",
            "extender_scheduler_names",
            metavar="NAME",
            multiple=True,
            callback=_check_names,
            envvar="FAIRBIND_EXTENDER_SCHEDULER_NAME",
            default=("default-scheduler",),
            show_default=True,
            show_envvar=True,
            help="In extender mode, the scheduler whose pods take turns. May be repeated.",
        ),
        click.option(
            "--extender-address",
            metavar="HOST:PORT",
            envvar="FAIRBIND_EXTENDER_ADDRESS",
            default=":8443",
            show_default=True,
            show_envvar=True,
            help="In extender mode, where kube-scheduler is answered.",
        ),
        click.option(
            "--extender-tls",
            metavar="FOLDER",
            type=click.Path(path_type=Path),
            envvar="FAIRBIND_EXTENDER_TLS",
            show_envvar=True,
            help="In extender mode, the folder with tls.crt and tls.key, with which kube-scheduler is answered, and "
            "ca.crt, the authorities that sign its client certificate.",
        ),
        click.option(
            "--extender-client-name",
            "extender_client_names",
            metavar="NAME",
            multiple=True,
            envvar="FAIRBIND_EXTENDER_CLIENT_NAME",
            default=("system:kube-scheduler",),
            show_default=True,
            show_envvar=True,
            help="In extender mode, the common name of the client certificate of one who may ask. May be repeated.",
        ),
    )
    return _add(options, _add(_TURN_OPTIONS, function))


def _add(options: Sequence[Callable[[Command], Command]], function: Command) -> Command:
    for option in reversed(options):
        function = option(function)
    return function
