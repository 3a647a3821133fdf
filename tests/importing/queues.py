"""Reads queues that a test writes as YAML."""

from __future__ import annotations

from typing import Any

from fairbind.cli.mechanisms.yaml_text import read_yaml, read_yaml_documents
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.importing.documents import Document
from fairbind.importing.systems import READERS
from fairbind.importing.tenants import make_tenants


def read(system: str, *texts: str) -> tuple[dict[str, Any], list[str]]:
    """Return the specs of the Tenants by name, in their order, and the notes; each text is a file."""
    documents = [
        Document(f"file-{file}, document {n}", value)
        for file, text in enumerate(texts, 1)
        for n, value in enumerate(read_yaml_documents(text), 1)
    ]
    reading = READERS[system](documents, read_yaml)
    tenants = make_tenants(reading)
    for tenant in tenants:
        parse_tenant(tenant)  # what a cluster's Tenants go through
    return {tenant["metadata"]["name"]: tenant["spec"] for tenant in tenants}, [str(note) for note in reading.notes]
