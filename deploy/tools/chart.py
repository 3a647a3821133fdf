"""Make the files that follow from others, or check that they are what they should be.

The sources are crds/, the alert rules, the dashboard, the examples, the chart's values.yaml and templates, the
package's version, and deploy/publishing.toml with the registry that the chart names. From them come the chart's own
copies (a chart must hold all that it installs), its description of the CRDs, the table of values in its README, the
reference of the CRDs and the kustomize base, which is the chart as helm renders it; without a helm that is left alone.

    python deploy/tools/chart.py               write everything
    python deploy/tools/chart.py --check       write nothing; exit 1 and name what differs
    python deploy/tools/chart.py --helm PATH   with this helm, not the one that `make tools` built or that of PATH
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from crd_reference import compute_reference
from publishing import read_published, write_registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
CRDS = ("schedulingpolicies.yaml", "sharereports.yaml", "tenants.yaml")
CARRIED = ("deploy/alerts/fairbind.rules.yaml", "deploy/dashboard/fairbind.json")
"""What the chart carries a copy of, in files/."""
TABLE = re.compile(r"(?<=<!-- begin values -->\n).*?(?=<!-- end values -->)", re.DOTALL)
ANNOTATIONS = re.compile(r"(?<=  # begin made\n).*?(?=  # end made\n)", re.DOTALL)
EXAMPLES = ("tenants.yaml", "policy.yaml")
HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")
MADE = "# Made from the chart by deploy/tools/chart.py; change the chart and run it again.\n"

Outputs = dict[Path, str]


def compute_outputs(root: Path, helm: Path | None) -> Outputs:
    """Return the text of every file that follows from others, by path; the kustomize base only with a helm."""
    chart = root / "charts" / "fairbind"
    crds = {name: (root / "crds" / name).read_text(encoding="utf-8") for name in CRDS}
    outputs: Outputs = {chart / "crds" / name: text for name, text in crds.items()}
    for path in CARRIED:
        outputs[chart / "files" / Path(path).name] = (root / path).read_text(encoding="utf-8")
    published = read_published(root)
    values = write_registry((chart / "values.yaml").read_text(encoding="utf-8"), published)
    outputs[chart / "values.yaml"] = values
    outputs[chart / "README.md"] = _compute_readme(chart, values)
    parsed = [yaml.safe_load(text) for text in crds.values()]
    outputs[chart / "Chart.yaml"] = _compute_chart_metadata(chart, published.version, _describe_crds(root, parsed))
    outputs[root / "docs" / "reference" / "crds.md"] = compute_reference(parsed)
    if helm is not None:
        base = root / "deploy" / "kustomize" / "base"
        outputs[base / "fairbind.yaml"] = MADE + compute_base(chart, helm, published.registry)
        outputs[base / "crds.yaml"] = "---\n".join(crds.values())
    return outputs


def compute_base(chart: Path, helm: Path, registry: str = "") -> str:
    """Return the chart as helm renders it, without what is there for helm. registry: that the image is pulled from.

    The SchedulingPolicy is left out: kubectl cannot apply an object together with the CRD that defines it, and without
    one the same policy applies. Raises CalledProcessError when helm refuses the chart.
    """
    command = [
        str(helm),
        "template",
        "fairbind",
        str(chart),
        "--namespace=fairbind-system",
        "--set=policy.create=false",
        f"--set=image.registry={registry}",
        "--skip-tests",
    ]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    objects = [_without_helm_labels(document) for document in yaml.safe_load_all(rendered) if document]
    objects.sort(key=lambda document: (document["kind"], document["metadata"]["name"]))
    return yaml.safe_dump_all(objects, sort_keys=False, width=120)


def find_values(text: str) -> Iterator[tuple[str, object, str]]:
    """Yield each documented value of a values.yaml: its path, its default and the comment right above it.

    Raises ValueError for a value that has none.
    """
    lines = text.splitlines()
    yield from _find_values(yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text), lines, ())


def _find_values(
    node: yaml.Node | None, value: Mapping[str, Any], lines: Sequence[str], path: tuple[str, ...]
) -> Iterator[tuple[str, object, str]]:
    assert isinstance(node, yaml.MappingNode)
    for key, child in node.value:
        here = (*path, key.value)
        comment = _find_comment(lines, key.start_mark.line)
        if comment:
            yield ".".join(here), value[key.value], comment
        elif isinstance(child, yaml.MappingNode) and child.value:
            yield from _find_values(child, value[key.value], lines, here)
        else:
            raise ValueError(f"values.yaml: {'.'.join(here)} has no comment that describes it")


def _find_comment(lines: Sequence[str], number: int) -> str:
    """Return the lines of comment right above a line, as one."""
    found: list[str] = []
    while number > 0 and lines[number - 1].lstrip().startswith("#"):
        number -= 1
        found.insert(0, lines[number].strip().lstrip("# "))
    return " ".join(found)


def _compute_readme(chart: Path, values: str) -> str:
    rows = [f"| `{path}` | `{json.dumps(default)}` | {comment} |\n" for path, default, comment in find_values(values)]
    table = "".join(["\n| value | default | what it does |\n", "| --- | --- | --- |\n", *rows, "\n"])
    return TABLE.sub(lambda _: table, (chart / "README.md").read_text(encoding="utf-8"))


def _compute_chart_metadata(chart: Path, version: str, annotations: Mapping[str, str]) -> str:
    text = (chart / "Chart.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^(version|appVersion): .*$", rf"\1: {version}", text, flags=re.MULTILINE)
    blocks = [f"  {name}: |\n{textwrap.indent(value, '    ')}" for name, value in annotations.items()]
    return ANNOTATIONS.sub(lambda _: "".join(blocks), text)


def _describe_crds(root: Path, crds: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what Artifact Hub shows of the CRDs, as annotations of the chart, with the examples of deploy/examples."""
    described = [
        {
            "kind": crd["spec"]["names"]["kind"],
            "version": version["name"],
            "name": crd["metadata"]["name"],
            "displayName": crd["spec"]["names"]["kind"],
            "description": version["schema"]["openAPIV3Schema"]["description"],
        }
        for crd in crds
        for version in crd["spec"]["versions"]
    ]
    texts = [(root / "deploy" / "examples" / name).read_text(encoding="utf-8") for name in EXAMPLES]
    examples = [document for text in texts for document in yaml.safe_load_all(text)]
    parts = {"artifacthub.io/crds": described, "artifacthub.io/crdsExamples": examples}
    return {name: yaml.safe_dump(part, sort_keys=False, width=110) for name, part in parts.items()}


def _without_helm_labels(document: dict[str, Any]) -> dict[str, Any]:
    metadatas = [document["metadata"]]
    if document["kind"] == "Deployment":
        metadatas.append(document["spec"]["template"]["metadata"])
    for metadata in metadatas:
        for label in HELM_LABELS:
            metadata.get("labels", {}).pop(label, None)
    return document


def find_differences(outputs: Outputs) -> list[Path]:
    """Return the files that are missing or are not what they should be."""
    return [path for path, text in outputs.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def find_helm() -> str | None:
    """Return the helm that was built for the local control plane, else the one of PATH, else None."""
    sys.path.append(str(ROOT / "deploy" / "tools" / "local"))
    from localplane.failures import ToolError  # noqa: PLC0415 - its folder is on the path only now
    from localplane.tools import ensure_tools  # noqa: PLC0415 - likewise

    try:
        return str(ensure_tools(()).path("helm"))
    except ToolError:
        return shutil.which("helm")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the files; return the exit status."""
    parser = argparse.ArgumentParser(description="Make the files that follow from the CRDs, the chart and the alerts.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the files that differ")
    parser.add_argument("--helm", default=find_helm(), help="the helm that renders the chart")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    helm = Path(options.helm) if options.helm else None
    if helm is None:
        print("no helm (`make tools` builds one): deploy/kustomize/base is left as it is", file=sys.stderr)
    outputs = compute_outputs(options.root, helm)
    differing = find_differences(outputs)
    for path in differing:
        if options.check:
            print(f"{path.relative_to(options.root)} is out of date: run python deploy/tools/chart.py", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(outputs[path], encoding="utf-8")
            print(f"wrote {path.relative_to(options.root)}")
    return 1 if options.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
