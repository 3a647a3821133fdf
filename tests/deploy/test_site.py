"""The site of the documents is built, its links lead somewhere, and it fetches nothing from elsewhere."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from docsite import main as docsite
from house.tree import ROOT, find_files, name_of

FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src"}


class Page(HTMLParser):
    """What a page links to, what it fetches, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors.add(found.get("id") or "")
        self.links.add((tag == "a" and found.get("href")) or "")
        self.fetched.add((tag in FETCHED and found.get(FETCHED[tag])) or "")


@pytest.fixture(scope="module")
def python() -> Path:
    return docsite.ensure_environment()


@pytest.fixture(scope="module")
def built(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of two versions."""
    output = tmp_path_factory.mktemp("site")
    for version in ("0.1.0", "main"):
        docsite.build(python, version, output)
    return output


def test_links_and_what_is_fetched_lie_in_the_site(built: Path) -> None:
    pages = {path: Page(path) for path in built.glob("main/**/*.html") if path.name != "404.html"}
    wrong = []
    for path, page in pages.items():
        for link in (page.links | page.fetched) - {""}:
            target, _, anchor = unquote(link).partition("#")
            file = (path.parent / target).resolve() if target else path
            is_elsewhere = re.match(r"https?://", link) is not None
            if is_elsewhere and link in page.links and link not in page.fetched:
                continue
            if not file.exists() or (anchor and file in pages and anchor not in pages[file].anchors):
                wrong.append((path.name, link))

    assert len(pages) > 50
    assert wrong == []
    styles = [path for path in built.rglob("*.css") if re.search(r"url\(['\"]?(https?:)?//", path.read_text())]
    assert styles == []


def test_every_document_is_a_page_and_listed_for_machines(built: Path) -> None:
    listed = re.findall(r"^- \[.+\]\((\S+\.md)\): \S", (built / "main" / "llms.txt").read_text(), re.MULTILINE)

    for page in find_files("docs/*.md"):
        name = name_of(page).removeprefix("docs/")
        assert name in listed
    for name in listed:
        assert (built / "main" / name).is_file()
        assert (built / "main" / re.sub("README.md$", "index.md", name)).with_suffix(".html").is_file()


def test_pages_from_outside_docs_link_to_pages_and_to_the_repository_at_the_version(built: Path) -> None:
    start = Page(built / "main" / "index.html").links
    where = "https://github.com/fairbind/fairbind"

    assert {"install.html", "vulnerabilities.html", "chart.html", f"{where}/blob/main/LICENSE"} <= start
    assert f"{where}/blob/v0.1.0/LICENSE" in Page(built / "0.1.0" / "index.html").links


def test_words_are_found_without_a_server(built: Path) -> None:
    index = json.loads((built / "main" / "search" / "search_index.js").read_text().removeprefix("var __index = "))

    assert any("quorum" not in each["text"] and "PS-DSF" in each["title"] for each in index["docs"])


def test_versions_are_listed_newest_first(built: Path) -> None:
    versions = json.loads((built / "versions.json").read_text())

    assert [each["version"] for each in versions] == ["0.1.0", "main"]
    assert "url=0.1.0/index.html" in (built / "index.html").read_text()
    with pytest.raises(SystemExit, match="2"):
        docsite.main(["--version", "../0.1.0", "--output", str(built)])


def test_links_that_lead_nowhere_and_pages_outside_the_navigation_end_the_build(python: Path, tmp_path: Path) -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    settings["theme"] = {"name": "mkdocs"}
    settings |= {"docs_dir": "docs", "hooks": [str(ROOT / hook) for hook in settings["hooks"]], "plugins": []}
    configuration = tmp_path / "mkdocs.yml"
    configuration.write_text(yaml.safe_dump(settings), encoding="utf-8")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    links = ["gone.md", "#gone", "../gone/file", "/gone.md", "tasks.md#gone"]

    docsite.build(python, "main", tmp_path / "site", configuration)
    with (tmp_path / "docs" / "concepts.md").open("a", encoding="utf-8") as page:
        page.write("".join(f"[nowhere]({link}) " for link in links))
    (tmp_path / "docs" / "loose.md").write_text("# Loose\n", encoding="utf-8")
    with pytest.raises(docsite.SiteError) as caught:
        docsite.build(python, "main", tmp_path / "site", configuration)

    assert [text for text in [*links, "  - loose.md"] if text not in str(caught.value)] == []
