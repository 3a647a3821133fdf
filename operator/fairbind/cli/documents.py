"""What commands print for programs: JSON or YAML."""

from __future__ import annotations

import json


def format_document(document: object, output: str) -> str:
    """Return plain values as the text that ``-o json`` or ``-o yaml`` prints, without a last line break."""
    if output == "json":
        return json.dumps(document, indent=2, allow_nan=False)
    import yaml  # noqa: PLC0415 - only YAML needs it, and it is slow to import

    return yaml.safe_dump(document, sort_keys=False).rstrip()
