"""Options of the plugin's own commands, named as kubectl names them."""

from __future__ import annotations

import click

from fairbind.cli.cluster_options import (
    DEFAULT_NAMESPACE,
    check_namespace,
    context_option,
    find_default_namespace,
    kubeconfig_option,
    listed_scheduler_names_option,
)
from fairbind.cli.impersonation import impersonation_options
from fairbind.cli.options import Command, debug_option, output_option


def operator_namespace_option(function: Command) -> Command:
    """Add --operator-namespace, for what `fairbind` itself calls --namespace."""
    option = click.option(
        "--operator-namespace",
        metavar="NAME",
        callback=check_namespace,
        envvar=["FAIRBIND_NAMESPACE", "POD_NAMESPACE"],
        default=find_default_namespace,
        show_envvar=True,
        show_default=DEFAULT_NAMESPACE,
        help="Name the namespace that the operator runs in; its pods belong to no tenant.",
    )
    return option(function)


def scope_options(function: Command) -> Command:
    """Add what says where to look, and --output."""
    options = (
        click.option(
            "-n",
            "--namespace",
            metavar="NAME",
            callback=check_namespace,
            help="Look at this namespace; without it at the one of the kubeconfig's context.",
        ),
        click.option("-A", "--all-namespaces", is_flag=True, help="Look at all namespaces."),
        context_option,
        kubeconfig_option,
        impersonation_options,
        click.option(
            "-f", "--filename", metavar="FILE", help="Look at a file of `fairbind snapshot` in place of a cluster."
        ),
        listed_scheduler_names_option("Count pods of this spec.schedulerName as waiting for fairbind."),
        operator_namespace_option,
        output_option("table", "json", "yaml"),
        debug_option,
    )
    for option in reversed(options):
        function = option(function)
    return function
