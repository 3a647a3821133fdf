"""A Kubernetes cluster of containers on this machine, by kind: real kubelets run real containers.

A Docker engine is all that must be there (``engine``); kind, helm and kubectl are built from pinned Go modules as the
local control plane's programs are. ``cluster`` makes a cluster from ``kind-config.yaml`` under a name of its own, so
that any number of runs share an engine, and takes everything away again however the run ends (``reaper``). ``images``
builds the operator's image and a tiny one for workloads. The demo, the tests and ``make kind-up`` use this package.

    from kindcluster.cluster import Cluster
    from kindcluster.images import build_images

    with Cluster.make() as cluster:
        cluster.load_images(build_images())
        print(cluster.kubectl("get", "nodes"))
"""

from __future__ import annotations
