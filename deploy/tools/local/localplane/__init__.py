"""A real Kubernetes control plane on this machine: etcd, kube-apiserver, kube-controller-manager and kwok.

Everything is built from pinned Go modules into a cache (``tools``), started on loopback with TLS and RBAC (``plane``),
and dies with the process that started it (``processes``). Nodes and kubelets are kwok's fakes (``nodes``); everything
else is what a production cluster runs. The demo, the tests and the benchmarks use this package; the wheel does not.

    from localplane.plane import ControlPlane
    from localplane.tools import ensure_tools

    with ControlPlane(ensure_tools()) as plane:
        plane.add_nodes(60)
        plane.wait_nodes_ready()
        print(plane.kubeconfig)
"""

from __future__ import annotations
