"""What mkdocs does beyond its own for the site: pages from outside docs, links that leave docs, and llms.txt.

Pages are written for GitHub, where a link may lead anywhere in the repository and an anchor is made GitHub's way. Here
the pages of IMPORTED become pages of the site, README.md its first; a link to anything else outside docs leads to the
repository at the version's tag. A link that leads nowhere is a warning of mkdocs, and ends a strict build.

Runs in the environment of the site (docs/requirements.txt), where fairbind itself is not installed.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[3]
IMPORTED = {
    "README.md": "index.md",
    "charts/fairbind/README.md": "chart.md",
    "SECURITY.md": "vulnerabilities.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Where pages from outside docs stand in the site."""
RAW = re.compile(r"docs/(benchmarks|reliability)/results/|docs/reproduction/.*\.csv$")
"""Raw results, which are in the repository and in a release's archive of results."""
SOURCES = {page: source for source, page in IMPORTED.items()}
VERSION = os.environ.get("FAIRBIND_SITE_VERSION", "main")
LINK = re.compile(r"(?P<before>\]\(|\b(?:src|href)=\")(?P<path>[^)\s\"#:]+)(?P<after>#[^)\s\"]*)?(?=[)\s\"])")
CODE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
log = logging.getLogger("mkdocs.plugins.fairbind")


def on_config(config: Any) -> Any:
    """Make anchors as GitHub does, so that one link is right in both places."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside docs."""
    for source, page in IMPORTED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Turn links that leave docs, and drop comments, which would join what stands around them."""
    text = COMMENT.sub("", markdown)
    pieces, end = [], 0
    for code in CODE.finditer(text):
        pieces += [_turn_links(text[end : code.start()], page.file.src_uri, config), code[0]]
        end = code.end()
    turned = "".join([*pieces, _turn_links(text[end:], page.file.src_uri, config)])
    page.meta["source"] = turned
    if any(ancestor.title == "Evidence" for ancestor in page.ancestors):
        page.meta["search"] = {"boost": 0.3}  # guides first: results name everything
    return turned


def on_nav(nav: Any, **_: Any) -> None:
    """Keep the navigation for llms.txt."""
    _kept["nav"] = nav


def on_post_build(config: Any) -> None:
    """Write llms.txt, and beside each page what it was made from."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for part in _kept["nav"].items:
        lines += ["", f"## {part.title}", ""]
        for page in _find_pages(part):
            text = page.meta["source"]
            path = site / page.file.src_uri
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            lines.append(f"- [{page.title}]({page.file.src_uri}): {find_first_sentence(text)}")
    (site / "llms.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def find_first_sentence(text: str) -> str:
    """Return the first sentence of a page's prose, without links and pictures."""
    for paragraph in re.split(r"\n\s*\n", CODE.sub(lambda code: code[0].replace("\n\n", "\n"), text)):
        line = " ".join(paragraph.split())
        if line and not line.startswith(("#", "!", "|", "```", "<", ">", "- ", "[!")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)
            return re.split(r"(?<=[.?!:]) (?=[A-Z`*])", plain, maxsplit=1)[0]
    return ""


_kept: dict[str, Any] = {}


def _find_pages(item: Any) -> list[Any]:
    return [item] if item.is_page else [page for child in item.children for page in _find_pages(child)]


def _turn_links(text: str, page: str, config: Any) -> str:
    """Return the prose of a page of the site with its links turned. page: its path in the site."""
    source = SOURCES.get(page, f"docs/{page}")

    def turn(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["path"]))
        after = link["after"] or ""
        file = ROOT / path
        if path in IMPORTED:
            target = posixpath.relpath(IMPORTED[path], posixpath.dirname(page) or ".")
        elif path.startswith("docs/") and file.is_file() and not RAW.match(path):
            target = posixpath.relpath(path.removeprefix("docs/"), posixpath.dirname(page) or ".")
        elif file.exists():
            kind = "tree" if file.is_dir() else "blob"
            target = f"{config.extra['repository']}/{kind}/{'main' if VERSION == 'main' else f'v{VERSION}'}/{path}"
        else:
            log.warning("%s has a link to %s, which is not there", source, link["path"])
            return link[0]
        return f"{link['before']}{target}{after}"

    return LINK.sub(turn, text)
