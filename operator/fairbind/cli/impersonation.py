"""Asking the API server as another user: kubectl's options --as and --as-group.

The options stand in click's context rather than among a command's arguments, so any command that asks a cluster can
have them.
"""

from __future__ import annotations

import click

from fairbind.cli.options import Command

_USER = "impersonated_user"
_GROUPS = "impersonated_groups"


def impersonation_options(function: Command) -> Command:
    """Add --as and --as-group."""
    user = click.option(
        "--as", _USER, metavar="USER", expose_value=False, callback=_keep, help="Ask the API server as this user."
    )
    groups = click.option(
        "--as-group",
        _GROUPS,
        metavar="GROUP",
        multiple=True,
        expose_value=False,
        callback=_keep,
        help="Ask it as a member of this group, beside --as. May be repeated.",
    )
    return user(groups(function))


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    assert parameter.name is not None
    context.meta[parameter.name] = value


def find_impersonation_headers() -> list[tuple[str, str]]:
    """Return the headers that ask the API server to answer as to another user. Raises UsageError."""
    context = click.get_current_context(silent=True)
    if context is None:
        return []
    user, groups = context.meta.get(_USER), context.meta.get(_GROUPS) or ()
    if user is None:
        if groups:
            raise click.UsageError("--as-group: must stand beside --as, which says as which user")
        return []
    return [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
