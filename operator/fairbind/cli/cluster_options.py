"""Options of the commands that look at a cluster, or at a file that was made of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from fairbind.cli.completion import FILE
from fairbind.cli.options import Command, Words

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


file_argument = click.argument("file", required=False, type=FILE)

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    envvar="FAIRBIND_KUBECONFIG",
    show_envvar=True,
    help="Read from this file how to reach the cluster. Without it: KUBECONFIG, the pod's service account, "
    "~/.kube/config.",
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


def scheduler_names_option(about: str) -> Callable[[Command], Command]:
    """Return the option --scheduler-name with this help, which may be given several times."""
    return _make_scheduler_names_option(about, default=[DEFAULT_SCHEDULER_NAME], show_default=True)


def listed_scheduler_names_option(about: str) -> Callable[[Command], Command]:
    """Return the option --scheduler-name of a command that may read a file, which names schedulers itself."""
    return _make_scheduler_names_option(about, show_default=f"what FILE says, else {DEFAULT_SCHEDULER_NAME}")


def _make_scheduler_names_option(about: str, **attributes: Any) -> Callable[[Command], Command]:
    return click.option(
        "--scheduler-name",
        "scheduler_names",
        multiple=True,
        callback=_check_names,
        envvar="FAIRBIND_SCHEDULER_NAME",
        show_envvar=True,
        help=f"{about} May be given several times: operators overwrite it in the pods that they make.",
        **attributes,
    )


context_option = click.option(
    "--context", metavar="NAME", help="Use this context of the kubeconfig; without it the current one."
)
own_namespace_option = namespace_option("Name the namespace that the operator runs in; its pods belong to no tenant.")
tenant_option = click.option(
    "--tenant",
    "tenants",
    metavar="NAME=NAMESPACE,...[:WEIGHT]",
    type=Words("tenant", r"([^=,:]+)=([^=,:]+(?:,[^=,:]+)*)(?::(.+))?", "research=ml,ml-dev:2"),
    multiple=True,
    help="Count these namespaces as a tenant of this name, in place of the one that they belong to. Its weight is 1 "
    "where none is given. Nothing is written to the cluster.",
)


def live_options(function: Command) -> Command:
    """Add what says which live cluster is looked at."""
    return _add((kubeconfig_option, context_option, own_namespace_option), function)


def source_options(scheduler_name: str) -> Callable[[Command], Command]:
    """Return what a command takes that looks at a live cluster or at a file of one.

    scheduler_name: the help of --scheduler-name.
    """
    options = (file_argument, live_options, listed_scheduler_names_option(scheduler_name), tenant_option)
    return lambda function: _add(options, function)


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


tenant_view_option = _setting(
    "--tenant-view",
    type=click.Choice(["off", "own", "all"]),
    default="off",
    help="Show members of namespaces what their tenant holds, what would be fair and why their pods wait, by a "
    "ShareReport in each namespace with pods. own: no report names another tenant. all: reports name those that come "
    "before.",
)


def gate_options(function: Command) -> Command:
    """Add what gate mode needs."""
    options = (
        _setting(
            "--mode",
            type=click.Choice(["bind", "gate", "extender"]),
            default="bind",
            help="Choose whose pods are scheduled. bind: fairbind places its own pods. gate: in addition, pods of "
            "another scheduler wait behind the scheduling gate fairbind.io/turn, which fairbind opens when their "
            "turn has come. extender: in addition, kube-scheduler asks fairbind whether it is the turn of its pods.",
        ),
        _setting(
            "--gate-scheduler-name",
            metavar="NAME",
            callback=check_scheduler_name,
            default="default-scheduler",
            help="In gate mode, let the pods of this scheduler take turns.",
        ),
        _setting(
            "--max-ungated",
            metavar="PODS",
            type=click.IntRange(1, 10_000),
            default=200,
            help="In gate mode, let at most so many pods have an open gate and no node yet.",
        ),
        _setting(
            "--ungated-timeout",
            metavar="SECONDS",
            type=click.FloatRange(1.0, 3600.0),
            default=30.0,
            help="In gate mode, keep the reservation of a pod whose gate is open for so long without being bound.",
        ),
        _setting(
            "--gate-placement",
            type=click.Choice(["policy", "node"]),
            default="policy",
            help="In gate mode, narrow pods to nodes only where the policy decides by class, or always.",
        ),
        _setting(
            "--max-scale-up",
            metavar="PODS",
            type=click.IntRange(0, 1_000),
            default=0,
            help="In gate mode, show autoscalers so many pods of a tenant that fit nowhere, by an open gate.",
        ),
    )
    return _add(options, function)


def _check_names(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(check_scheduler_name(context, parameter, name) for name in names)


kept_places_option = _setting(
    "--kept-place-seconds",
    "kept_seconds",
    type=click.FloatRange(0, 3_600),
    default=60.0,
    help="Keep the place of a lost member of a group for so long for the group, once its minimum stood; 0: not at all.",
)


def undo_options(function: Command) -> Command:
    """Add what happens to groups that cannot be completed."""
    options = (
        _setting(
            "--undo-groups",
            is_flag=True,
            help="Evict the pods of a group that began, cannot be completed, and never had its minimum. It needs the "
            "right to create pods/eviction.",
        ),
        _setting(
            "--undo-groups-after",
            "undo_seconds",
            metavar="SECONDS",
            type=click.FloatRange(1.0, 86_400.0),
            default=300.0,
            help="Count a group as one that cannot be completed after so long below its minimum with pods on nodes.",
        ),
    )
    return _add(options, function)


volcano_inqueue_option = _setting(
    "--volcano-inqueue",
    is_flag=True,
    help="Give PodGroups of Volcano's own Jobs the phase Inqueue, without which Volcano makes no pods of a Job. Only "
    "where Volcano's scheduler does not run.",
)


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
            help="In extender mode, let the pods of this scheduler take turns. May be repeated.",
        ),
        _setting(
            "--extender-address",
            metavar="HOST:PORT",
            default=":8443",
            help="In extender mode, answer kube-scheduler here.",
        ),
        _setting(
            "--extender-tls",
            metavar="FOLDER",
            type=click.Path(path_type=Path),
            help="In extender mode, read from this folder tls.crt and tls.key, with which kube-scheduler is answered,"
            " and ca.crt, the authorities that sign its client certificate.",
        ),
        _setting(
            "--extender-client-name",
            "extender_client_names",
            metavar="NAME",
            multiple=True,
            default=("system:kube-scheduler",),
            help="In extender mode, answer clients whose certificate has this common name. May be repeated.",
        ),
        _setting(
            "--extender-service",
            metavar="NAME",
            callback=check_namespace,
            help="In extender mode, let this Service, which has no selector, lead to the leader.",
        ),
        _setting(
            "--extender-pod-ip",
            metavar="ADDRESS",
            envvar=["FAIRBIND_EXTENDER_POD_IP", "POD_IP"],
            help="Use this address of the replica in that Service.",
        ),
        _setting(
            "--max-turns",
            metavar="PODS",
            type=click.IntRange(1, 10_000),
            default=200,
            help="In extender mode, let at most so many pods have their turn and no node yet.",
        ),
        _setting(
            "--turn-timeout",
            metavar="SECONDS",
            type=click.FloatRange(1.0, 3600.0),
            default=10.0,
            help="In extender mode, let a pod have its turn for so long.",
        ),
    )
    return _add(options, function)


def _add(options: Sequence[Callable[[Command], Command]], function: Command) -> Command:
    for option in reversed(options):
        function = option(function)
    return function
