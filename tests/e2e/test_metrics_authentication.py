"""Metrics for readers with a token only, and by HTTPS: a running operator, a real API server that says who may read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import urllib3
import yaml

from e2e.members import RBAC
from e2e.objects import make_name
from e2e.waiting import wait_for
from localplane.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, StartOperator
    from e2e.operators import Operator

WITHOUT_OPERATOR = {"operator": {"enabled": False}}
AUTHENTICATED = {"authentication": {"enabled": True}}
AUDIENCE = "fairbind.example.com"


@pytest.fixture
def allowed(cluster: Cluster) -> Iterator[None]:
    """The chart with the rights that the operator needs to ask about tokens; as before after the test."""
    cluster.install_chart({**WITHOUT_OPERATOR, "metrics": AUTHENTICATED})
    yield
    cluster.install_chart(WITHOUT_OPERATOR)


def make_reader(cluster: Cluster, namespace: str) -> tuple[str, str]:
    """Return name and token of a new ServiceAccount."""
    name = make_name("reader")
    cluster.api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    kubeconfig = cluster.service_account_kubeconfig(namespace, name)
    token: str = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]["token"]
    return name, token


def make_token(api: Api, namespace: str, reader: str, *audiences: str) -> str:
    """Return a token of a ServiceAccount for these audiences."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": audiences}}
    answer = api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{reader}/token", request)
    return str(answer["status"]["token"])


def let_read(api: Api, namespace: str, reader: str) -> None:
    """Bind a ServiceAccount to the chart's role for readers."""
    body = {
        "metadata": {"name": reader},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "fairbind-metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": reader, "namespace": namespace}],
    }
    api.post(f"/apis/{RBAC}/v1/clusterrolebindings", body)


def fetch_refusal(running: Operator, token: str = "", *, scheme: str = "Bearer") -> tuple[int, str]:
    """Return what somebody hears who may not read; fail at once when it is let in.

    To be asked again: 503 is right as well while the API server is slow to review the token.
    """
    headers = {"Authorization": f"{scheme} {token}"} if token else {}
    status, text = running.fetch("/metrics", **headers)
    if status == 200:
        pytest.fail(f"let in with {scheme} {token or 'nothing'}")
    return status, text


def read(running: Operator, token: str) -> str:
    """Return the metrics, nothing while they are refused."""
    status, text = running.fetch("/metrics", Authorization=f"Bearer {token}")
    return text if status == 200 else ""


@pytest.mark.usefixtures("allowed")
def test_only_who_may_get_the_path_sees_metrics(
    cluster: Cluster, namespace: MakeNamespace, operator: StartOperator
) -> None:
    home = namespace()
    reader, token = make_reader(cluster, home)
    running = operator("--metrics-authentication")

    invalid = (401, "the token is not valid\n")
    forbidden = (403, f"system:serviceaccount:{home}:{reader} may not get /metrics\n")
    wait_for(lambda: fetch_refusal(running) == (401, "a bearer token is needed\n"), describe="nobody to be refused")
    wait_for(lambda: fetch_refusal(running, "nonsense") == invalid, describe="nonsense to be refused")
    wait_for(lambda: fetch_refusal(running, token, scheme="Basic")[0] == 401, describe="a password to be refused")
    wait_for(lambda: fetch_refusal(running, f"{token[:-4]}AAAA")[0] == 401, describe="a forged token to be refused")
    wait_for(lambda: fetch_refusal(running, token) == forbidden, describe="who may not read to be refused")
    assert running.fetch("/healthz")[0] == 200
    wait_for(running.is_ready, describe="it to be ready")

    let_read(cluster.api, home, reader)
    try:
        text = wait_for(lambda: read(running, token), describe="the reader to be let in")
        assert "fairbind_leader" in text
        wait_for(lambda: fetch_refusal(running, "nonsense") == invalid, describe="nonsense to be refused still")
    finally:
        cluster.api.delete(f"/apis/{RBAC}/v1/clusterrolebindings/{reader}")


def test_without_the_right_to_ask_nobody_is_let_in(
    cluster: Cluster, namespace: MakeNamespace, operator: StartOperator
) -> None:
    """The operator runs without the chart's value: it must not take a refusal for a yes, and goes on all the same."""
    _, token = make_reader(cluster, namespace())
    running = operator("--metrics-authentication")

    def names_what_is_missing() -> bool:
        status, text = fetch_refusal(running, token)
        assert status == 503
        return "tokenreviews" in text and "forbidden" in text

    wait_for(names_what_is_missing, describe="the refusal of the API server to be told")
    wait_for(running.is_ready, describe="it to be ready")


@pytest.mark.usefixtures("allowed")
def test_by_https_with_the_certificate_of_a_folder(
    cluster: Cluster, namespace: MakeNamespace, operator: StartOperator, tmp_path: Path
) -> None:
    authority = Authority()
    authority.issue_server("fairbind", ["127.0.0.1"]).write(tmp_path / "tls.crt", tmp_path / "tls.key")
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(authority.certificate)
    home = namespace()
    reader, token = make_reader(cluster, home)
    let_read(cluster.api, home, reader)
    try:
        running = operator("--metrics-authentication", f"--metrics-tls={tmp_path}", wait=False)
        with urllib3.PoolManager(ca_certs=str(trusted), retries=False) as pool:
            pages = f"https://{running.address}"
            wait_for(lambda: pool.request("GET", f"{pages}/readyz").status == 200, describe="it to be ready")
            bearer = {"Authorization": f"Bearer {token}"}
            assert pool.request("GET", f"{pages}/metrics").status == 401  # at once: there is no token to review

            def is_let_in() -> bool:
                answer = pool.request("GET", f"{pages}/metrics", headers=bearer)
                return (answer.status, b"fairbind_leader" in answer.data) == (200, True)

            wait_for(is_let_in, describe="the reader to be let in")
        assert running.fetch("/metrics", Authorization=bearer["Authorization"])[0] == 0
    finally:
        cluster.api.delete(f"/apis/{RBAC}/v1/clusterrolebindings/{reader}")


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
@pytest.mark.usefixtures("allowed")
def test_with_a_certificate_and_an_audience_of_its_own(
    cluster: Cluster, namespace: MakeNamespace, operator: StartOperator
) -> None:
    """A token for the API server is not one for the metrics, nor the other way round."""
    home = namespace()
    reader, ordinary = make_reader(cluster, home)
    own = make_token(cluster.api, home, reader, "another", AUDIENCE)
    let_read(cluster.api, home, reader)
    try:
        running = operator(
            "--metrics-authentication", "--metrics-tls=self-signed", f"--metrics-audience={AUDIENCE}", wait=False
        )
        pages = f"https://{running.address}"
        with urllib3.PoolManager(cert_reqs="CERT_NONE", retries=False) as pool:

            def read_as(token: str) -> int:
                answer = pool.request("GET", f"{pages}/metrics", headers={"Authorization": f"Bearer {token}"})
                return int(answer.status)

            wait_for(lambda: pool.request("GET", f"{pages}/readyz").status == 200, describe="it to be ready")
            wait_for(lambda: read_as(own) == 200, describe="the reader to be let in")
            wait_for(lambda: read_as(ordinary) == 401, describe="a token for another audience to be refused")
        with urllib3.PoolManager(retries=False) as strict, pytest.raises(urllib3.exceptions.SSLError):
            strict.request("GET", f"{pages}/readyz")
    finally:
        cluster.api.delete(f"/apis/{RBAC}/v1/clusterrolebindings/{reader}")
