"""What `fairbind open-gates` does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from fairbind import __version__
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.kube.operator.open_gates import open_all_gates


def print_opened(*, kubeconfig: Path | None, context: str | None, is_dry: bool) -> None:
    """Open all gates and print the pods. Raises FairbindError or ApiError; PermanentClusterError for a bad file."""
    credentials = load_credentials(kubeconfig, context=context)

    async def act() -> int:
        api = ApiClient(credentials, user_agent=f"fairbind-open-gates/{__version__}")
        try:
            return await open_all_gates(api, is_dry=is_dry, on_opened=click.echo)
        finally:
            await api.close()

    count = asyncio.run(act())
    click.echo(f"{count} gates {'to open' if is_dry else 'opened'}", err=True)
