"""Documents point at what is there: files, headings, images, and targets of the Makefile."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from fairbind.cli import main
from fairbind.web.metric_specs import METRICS
from house.tree import ROOT, find_files, name_of
from localplane.tools import OLDER_KUBERNETES

LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)|(?:src|href)=\"(?P<quoted>[^\"]+)\"")
IMPORTED = ("index.md", "chart.md", "vulnerabilities.md", "contributing.md", "changelog.md")
"""Pages of the site that stand outside docs (deploy/tools/docsite/hooks.py)."""
HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*$", re.MULTILINE)
MOST_WORDS = 30_000
"""Of all guides together: who adds a page shortens others."""
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"\bmake (?:-s |[A-Z]+=\S+ )*([a-z][a-z0-9-]*)")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def compute_anchors(text: str) -> set[str]:
    """Return the fragments that a page offers: each heading in lower case, without punctuation, blanks as hyphens."""
    headings = [match["text"] for match in HEADING.finditer(FENCE.sub("", text))]
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def find_broken_links(page: Path) -> list[str]:
    broken = []
    for match in LINK.finditer(FENCE.sub("", read(page))):
        target = match["target"] or match["quoted"]
        if re.match(r"[a-z]+:", target):  # elsewhere: looking there would make the tests depend on the network
            continue
        path, _, fragment = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (fragment and file.suffix == ".md" and fragment not in compute_anchors(read(file))):
            broken.append(f"{name_of(page)} -> {target}")
    return broken


def test_links_lead_somewhere() -> None:
    pages = find_files("*.md")

    assert len(pages) > 1
    assert [link for page in pages for link in find_broken_links(page)] == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b`, c\n[x](#a-b-c) [y](page.md#a) [z](gone.md) ![w](page.md)\n", encoding="utf-8")

    assert [match["target"] for match in LINK.finditer(read(page))] == ["#a-b-c", "page.md#a", "gone.md", "page.md"]
    assert compute_anchors(read(page)) == {"a-b-c"}


def find_pages(part: object) -> list[str]:
    """Return the pages below a part of the site's navigation: a page, a title with a part, or a list of parts."""
    if isinstance(part, str):
        return [part]
    below = part.values() if isinstance(part, dict) else part
    assert isinstance(below, Iterable)
    return [page for each in below for page in find_pages(each)]


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    listed = find_pages(yaml.safe_load(read(ROOT / "mkdocs.yml"))["nav"])
    pages = [name_of(page).removeprefix("docs/") for page in find_files("docs/*.md")]

    assert find_pages([{"A": ["a.md", {"B": "b.md"}]}, "c.md"]) == ["a.md", "b.md", "c.md"]
    assert sorted(listed) == sorted([*pages, *IMPORTED])


def find_missing_paths(text: str) -> set[str]:
    """Return the paths below deploy that a text names, in one piece or joined of parts, and that are not there."""
    joined = re.sub(r"""(["']) / \1""", "/", text)
    named = re.findall(r"(?<![\w/.-])deploy/[\w./-]+", joined)
    return {path for path in named if not (ROOT / path.rstrip(".")).exists()}


def test_missing_paths_are_found() -> None:
    here = "deploy/"
    text = f"COPY {here}Dockerfile x\nSee `{here}gone.py`, {here}alerts. PYTHONPATH={here}old:{here}tools ../{here}a"

    assert find_missing_paths(text) == {f"{here}gone.py", f"{here}old"}
    assert find_missing_paths(f"ROOT / 'deploy' / '{'lost'}' / name") == {f"{here}lost"}


def test_whoever_names_a_path_below_deploy_finds_it() -> None:
    """Comments, recipes and messages, which nothing else reads, follow when a file moves."""
    files = [path for path in find_files("*") if b"deploy" in path.read_bytes()]

    assert len(files) > 20
    assert {
        (name_of(path), lost) for path in files for lost in find_missing_paths(path.read_text(errors="replace"))
    } == set()


def find_targets(text: str) -> set[str]:
    """Return the targets that the code in a page calls make with."""
    blocks = [match[0] for match in FENCE.finditer(text)]
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    return {target for code in [*blocks, *spans] for target in TARGET.findall(code)}


def test_targets_are_found_in_code_only() -> None:
    text = "`make -s local-kubeconfig` prints; we make sure.\n```sh\nNODES=3 make local-up\nmake help\n```\n"

    assert find_targets(text) == {"local-kubeconfig", "local-up", "help"}


def test_documents_name_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", read(ROOT / "Makefile"), re.MULTILINE))
    named = {(name_of(page), target) for page in find_files("*.md") for target in find_targets(read(page))}

    assert {(page, target) for page, target in named if target not in targets} == set()


def find_unknown_metrics(text: str) -> set[str]:
    """Return what looks like a metric of ours and is none; `_bucket` and the like belong to histograms."""
    names = {spec.name for spec in METRICS}
    parts = {
        f"{spec.name}_{part}" for spec in METRICS if spec.kind == "histogram" for part in ("bucket", "sum", "count")
    }
    prefixes = {name[:end] for name in names for end in range(len(name)) if name[:end].endswith("_")}
    return set(re.findall(r"\bfairbind_[a-z_]+", text)) - names - parts - prefixes


def test_unknown_metrics_are_found() -> None:
    assert find_unknown_metrics("`fairbind_leader`, `fairbind_tenant_`, `fairbind_leaders`") == {"fairbind_leaders"}


def test_documents_name_metrics_that_there_are() -> None:
    pages = find_files("README.md", "SECURITY.md", "docs/*.md")

    assert {(name_of(page), name) for page in pages for name in find_unknown_metrics(read(page))} == set()


def test_documents_name_options_that_the_command_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", "--help"]) == 0
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) | {"--version"}
    calls = [
        (name_of(page), option)
        for page in find_files("README.md", "docs/*.md")
        for call in re.findall(r"fairbind operator( [^`\n]*)", read(page))
        for option in re.findall(r"--[a-z-]+", call)
    ]

    assert calls
    assert [call for call in calls if call[1] not in options] == []


def test_documents_name_values_that_the_chart_has() -> None:
    values = yaml.safe_load(read(ROOT / "charts" / "fairbind" / "values.yaml"))
    groups = "|".join(values)
    named = {
        (name_of(page), path)
        for page in find_files("README.md", "docs/*.md")
        for path in re.findall(rf"(?:`|--set )((?:{groups})\.(?!fairbind\.io)[A-Za-z.]+)\b", read(page))
    }

    assert named
    assert {(page, path) for page, path in named if not has_value(values, path.split("."))} == set()


def has_value(values: object, path: list[str]) -> bool:
    return not path or (isinstance(values, dict) and path[0] in values and has_value(values[path[0]], path[1:]))


def test_reasons_of_conditions_are_what_the_operator_gives() -> None:
    code = "".join(read(path) for path in find_files("operator/fairbind/kube/*.py"))
    page = read(ROOT / "docs" / "operate.md")
    sections = re.findall(r"^### A \w+ is not ready$(.*?)(?=^###|\Z)", page, re.MULTILINE | re.DOTALL)
    reasons = [reason for section in sections for reason in re.findall(r"^\| `(\w+)`", section, re.MULTILINE)]

    assert len(sections) == 2
    assert [reason for reason in reasons if f'"{reason}"' not in code] == []


def test_the_oldest_kubernetes_that_is_promised_is_the_one_that_is_tested() -> None:
    [oldest] = OLDER_KUBERNETES
    chart = yaml.safe_load(read(ROOT / "charts" / "fairbind" / "Chart.yaml"))

    assert chart["kubeVersion"] == f">={oldest}.0-0"
    for page in ("README.md", "docs/install.md", "charts/fairbind/README.md"):
        assert f"Kubernetes {oldest} or newer" in read(ROOT / page), page
    assert f"KUBERNETES={oldest}" in read(ROOT / "Makefile")


def find_missing_tests(text: str) -> set[str]:
    """Return the tests that a text names as pytest does, by file, class and function, and that are not there."""
    named = set(re.findall(r"\btests/[\w/]+\.py(?:::\w+)*", text))
    return {name for name in named if not is_there(*name.split("::"))}


def is_there(file: str, *parts: str) -> bool:
    if not (ROOT / file).exists():
        return False
    nodes: list[ast.stmt] = ast.parse(read(ROOT / file)).body
    for part in parts:
        found = next((node for node in nodes if getattr(node, "name", None) == part), None)
        if found is None:
            return False
        nodes = getattr(found, "body", [])
    return True


def test_missing_tests_are_found() -> None:
    here = "tests/house/test_documents.py"
    text = f"`{here}::test_missing_tests_are_found`, {here}, `{here}::TestGone`, `tests/house/test_gone.py::test_a`"

    assert find_missing_tests(text) == {f"{here}::TestGone", "tests/house/test_gone.py::test_a"}


def test_documents_name_tests_that_there_are() -> None:
    pages = find_files("*.md")

    assert {(name_of(page), test) for page in pages for test in find_missing_tests(read(page))} == set()


def test_every_claim_of_the_security_page_names_its_test() -> None:
    page = read(ROOT / "docs" / "security.md")
    parts = [
        page.split(f"\n## {part}\n")[1].split("\n## ")[0]
        for part in ("Defended by default", "Needs a value", "Needs a quota")
    ]
    lines = "\n".join([*parts, read(ROOT / "docs" / "reference" / "shared-limits.md")]).splitlines()
    rows = [row for row in lines if row.startswith("| ") and not row.startswith("| ---")]

    assert len(rows) > 40
    assert len([row for row in rows if "<!-- tests/" not in row]) == 4  # the heads


def read_guide(page: Path) -> str:
    """Return what readers see of a guide: without comments, which name the tests of its claims."""
    return re.sub(r"<!--.*?-->", "", read(page), flags=re.DOTALL)


def test_guides_for_users_name_tests_in_comments_only() -> None:
    shown = {name_of(page) for page in find_guides() if re.search(r"\btest_\w|\btests/", read_guide(page))}

    assert shown <= {"docs/development.md", "docs/release.md"}


def find_guides() -> list[Path]:
    """Return the pages that people read from start to end: no references, results and mechanisms."""
    return [page for page in find_files(":(glob)docs/*.md") if page.stem != "fairness-table"]


def test_guides_are_short_in_all() -> None:
    words = {name_of(page): len(read_guide(page).split()) for page in find_guides()}

    assert len(words) > 15
    assert sum(words.values()) <= MOST_WORDS, words
