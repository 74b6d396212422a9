"""Graphs, molecules and points: PyTorch Geometric and e3nn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from packages_example import Example, Factory
from torch import nn

__all__ = ["MODULES"]

NODES, EDGES = {0: "nodes"}, {1: "edges"}
WIDTH = 8

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def _graph(nodes: int, edges: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(nodes, WIDTH, generator=generator)
    return features, torch.randint(0, nodes, (2, edges), generator=generator), generator


def _example(model: nn.Module, made: Callable[[Mapping[str, int], int], Inputs], dynamic: Any) -> Example:
    """A module of a graph; ``made`` returns another graph of the given sizes."""
    args, kwargs = made({"nodes": 12, "edges": 30}, 0)
    return Example(model.eval(), args, kwargs, dynamic, fresh=made)


def _plain(sizes: Mapping[str, int], seed: int) -> Inputs:
    features, edges, _ = _graph(sizes["nodes"], sizes["edges"], seed)
    return (features, edges), {}


def _with_attributes(sizes: Mapping[str, int], seed: int) -> Inputs:
    features, edges, generator = _graph(sizes["nodes"], sizes["edges"], seed)
    return (features, edges, torch.randn(sizes["edges"], 4, generator=generator)), {}


def _with_types(sizes: Mapping[str, int], seed: int) -> Inputs:
    features, edges, generator = _graph(sizes["nodes"], sizes["edges"], seed)
    return (features, edges, torch.randint(0, 3, (sizes["edges"],), generator=generator)), {}


def _with_points(sizes: Mapping[str, int], seed: int) -> Inputs:
    features, edges, generator = _graph(sizes["nodes"], sizes["edges"], seed)
    return (features, torch.randn(sizes["nodes"], 3, generator=generator), edges), {}


def _two_graphs(sizes: Mapping[str, int], seed: int) -> Inputs:
    """Two graphs in a batch; the numbers of their nodes differ."""
    features, edges, _ = _graph(sizes["nodes"], sizes["edges"], seed)
    return (features, edges, (torch.arange(sizes["nodes"]) > sizes["nodes"] // 3).long()), {}


def _basic(name: str, **options: Any) -> Example:
    from torch_geometric import nn as layers

    return _example(getattr(layers, name)(WIDTH, 16, 2, 5, **options), _plain, (NODES, EDGES))


def _attributes(name: str, **options: Any) -> Example:
    from torch_geometric import nn as layers

    model = getattr(layers, name)(WIDTH, 6, edge_dim=4, **options)
    return _example(model, _with_attributes, (NODES, EDGES, {0: "edges"}))


def _pna() -> Example:
    degrees = torch.tensor([1, 3, 5, 2, 1])
    aggregators, scalers = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
    return _attributes("PNAConv", aggregators=aggregators, scalers=scalers, deg=degrees)


def _rgcn() -> Example:
    from torch_geometric.nn import RGCNConv

    return _example(RGCNConv(WIDTH, 6, num_relations=3), _with_types, (NODES, EDGES, {0: "edges"}))


def _point_net() -> Example:
    from torch_geometric.nn import PointNetConv

    model = PointNetConv(nn.Sequential(nn.Linear(WIDTH + 3, 12), nn.ReLU()), nn.Linear(12, 5))
    return _example(model, _with_points, (NODES, NODES, EDGES))


class _Classifier(nn.Module):
    """A classifier of graphs: convolutions, a readout, a linear layer."""

    def __init__(self, *, pooling: bool) -> None:
        from torch_geometric.nn import SAGEConv, TopKPooling

        super().__init__()
        self.convolution = SAGEConv(WIDTH, 16)
        self.pooling = TopKPooling(16, ratio=0.5) if pooling else None
        self.linear = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        """Nodes, edges and the graph of each node to class scores of two graphs."""
        from torch_geometric.nn import global_max_pool, global_mean_pool

        x = self.convolution(x, edge_index).relu()
        if self.pooling is not None:
            x, edge_index, _, batch, _, _ = self.pooling(x, edge_index, None, batch)
        pooled = torch.cat([global_mean_pool(x, batch, 2), global_max_pool(x, batch, 2)], 1)
        scores: torch.Tensor = self.linear(pooled)
        return scores


def _classifier(*, pooling: bool) -> Example:
    return _example(_Classifier(pooling=pooling), _two_graphs, (NODES, EDGES, NODES))


class _Molecule(nn.Module):
    """SchNet with the edges of the molecule as an input: finding them takes torch-cluster."""

    def __init__(self) -> None:
        from torch_geometric.nn import SchNet

        super().__init__()
        self.network = SchNet(16, 16, 2, 10)

    def forward(self, numbers: torch.Tensor, positions: torch.Tensor, edge_index: torch.Tensor) -> Any:
        """Atomic numbers, positions and edges to an energy, as in ``SchNet.forward``."""
        row, column = edge_index
        distances = (positions[row] - positions[column]).norm(dim=-1)
        expanded = self.network.distance_expansion(distances)
        atoms = self.network.embedding(numbers)
        for interaction in self.network.interactions:
            atoms = atoms + interaction(atoms, edge_index, distances, expanded)
        return self.network.lin2(self.network.act(self.network.lin1(atoms))).sum()


def _molecule(sizes: Mapping[str, int], seed: int) -> Inputs:
    _, edges, generator = _graph(sizes["nodes"], sizes["edges"], seed)
    numbers = torch.randint(1, 9, (sizes["nodes"],), generator=generator)
    return (numbers, 2 * torch.randn(sizes["nodes"], 3, generator=generator), edges), {}


def _schnet() -> Example:
    return _example(_Molecule(), _molecule, (NODES, NODES, EDGES))


def _dense_gcn() -> Example:
    from torch_geometric.nn import DenseGCNConv

    args = (torch.randn(2, 9, WIDTH), (torch.rand(2, 9, 9) > 0.6).float())
    dynamic = ({0: "batch", 1: "nodes"}, {0: "batch", 1: "nodes", 2: "nodes"})
    return Example(DenseGCNConv(WIDTH, 6).eval(), args, {}, dynamic)


def _spherical_harmonics() -> Example:
    from e3nn import o3

    model = o3.SphericalHarmonics([0, 1, 2], normalize=True, normalization="component")
    return Example(model.eval(), (torch.randn(7, 3),), {}, ({0: "points"},))


def _tensor_product() -> Example:
    from e3nn import o3

    model = o3.FullyConnectedTensorProduct("4x0e + 2x1o", "1x0e + 1x1o", "3x0e + 2x1o")
    return Example(model.eval(), (torch.randn(7, 10), torch.randn(7, 4)), {}, ({0: "points"}, {0: "points"}))


MODULES: dict[str, Factory] = {
    "torch-geometric/GCN": partial(_basic, "GCN"),
    "torch-geometric/GAT": partial(_basic, "GAT", v2=True, heads=1),
    "torch-geometric/GraphSAGE": partial(_basic, "GraphSAGE"),
    "torch-geometric/TransformerConv": partial(_attributes, "TransformerConv", heads=2),
    "torch-geometric/PNAConv": _pna,
    "torch-geometric/RGCNConv": _rgcn,
    "torch-geometric/PointNetConv": _point_net,
    "torch-geometric/classifier": partial(_classifier, pooling=False),
    "torch-geometric/classifier, TopKPooling": partial(_classifier, pooling=True),
    "torch-geometric/SchNet": _schnet,
    "torch-geometric/DenseGCNConv": _dense_gcn,
    "e3nn/SphericalHarmonics": _spherical_harmonics,
    "e3nn/FullyConnectedTensorProduct": _tensor_product,
}
