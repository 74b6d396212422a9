"""Metrics, transforms, differential equations, flows, tables and time series."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from packages_example import BATCH, IMAGE, SERIES, Example, Factory, Function, images
from torch import nn

__all__ = ["MODULES"]


def _of_images(model: nn.Module, *, size: int = 48) -> Example:
    first = torch.rand(2, 3, size, size + 16)
    second = (first + 0.1 * torch.randn(first.shape)).clamp(0, 1)
    return Example(model.eval(), (first, second), {}, (IMAGE, IMAGE))


def _torchmetrics_images(name: str, **options: Any) -> Example:
    from torchmetrics.functional import image

    return _of_images(Function(getattr(image, name), **options))


def _torchmetrics_f1() -> Example:
    from torchmetrics.functional.classification import multiclass_f1_score

    args = (torch.randn(20, 4), torch.randint(0, 4, (20,)))
    return Example(Function(multiclass_f1_score, num_classes=4, average="macro").eval(), args, {}, (BATCH, BATCH))


def _torchmetrics_auroc() -> Example:
    from torchmetrics.functional.classification import binary_auroc

    args = (torch.rand(20), torch.randint(0, 2, (20,)))
    return Example(Function(binary_auroc, thresholds=11).eval(), args, {}, (BATCH, BATCH))


def _torchmetrics_sdr() -> Example:
    from torchmetrics.functional.audio import scale_invariant_signal_distortion_ratio

    target = torch.randn(2, 400)
    args = (target + 0.1 * torch.randn(2, 400), target)
    dynamic = {0: "batch", 1: "time"}
    return Example(Function(scale_invariant_signal_distortion_ratio).eval(), args, {}, (dynamic, dynamic))


def _piq(name: str) -> Example:
    import piq

    return _of_images(getattr(piq, name)(data_range=1.0))


def _msssim() -> Example:
    from pytorch_msssim import MS_SSIM

    return _of_images(MS_SSIM(data_range=1.0, channel=3, win_size=3), size=64)


def _dct(name: str) -> Example:
    import torch_dct

    return images(Function(getattr(torch_dct, name), norm="ortho"), 16, 24)


def _wavelets(name: str, **options: Any) -> Example:
    import pytorch_wavelets

    return images(getattr(pytorch_wavelets, name)(**options), 32, 48)


def _ptwt() -> Example:
    import ptwt

    def wavelets(x: torch.Tensor) -> Any:
        return ptwt.wavedec2(x, "db2", mode="reflect", level=2)[0]

    return images(Function(wavelets), 32, 48, channels=1)


class _Flow(nn.Module):
    """A neural differential equation."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.change = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
        self.method = method
        self.register_buffer("times", torch.linspace(0, 1, 5))

    def forward(self, start: torch.Tensor) -> Any:
        """A state to the states at five times."""
        from torchdiffeq import odeint

        return odeint(lambda _, y: self.change(y), start, self.times, method=self.method)


def _odeint(method: str) -> Example:
    return Example(_Flow(method).eval(), (torch.randn(4, 3),), {}, (BATCH,))


def _fno(**options: Any) -> Example:
    from neuralop.models import FNO

    model = FNO(n_modes=(6, 6), in_channels=1, out_channels=2, hidden_channels=8, n_layers=2, **options)
    return images(model, 16, 20, channels=1)


def _uno() -> Example:
    from neuralop.models import UNO

    model = UNO(
        in_channels=1,
        out_channels=1,
        hidden_channels=8,
        lifting_channels=8,
        projection_channels=8,
        n_layers=3,
        uno_out_channels=[8, 12, 8],
        uno_n_modes=[[5, 5], [5, 5], [5, 5]],
        channel_mlp_skip="linear",
        uno_scalings=[[1.0, 1.0], [0.5, 0.5], [2.0, 2.0]],
    )
    return images(model, 16, 20, channels=1)


class _Density(nn.Module):
    """The log-density of a normalizing flow."""

    def __init__(self, name: str) -> None:
        import zuko

        super().__init__()
        self.flow = getattr(zuko.flows, name)(features=3, context=2, transforms=2, hidden_features=(16, 16))

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> Any:
        """Points and their contexts to log-densities."""
        return self.flow(context).log_prob(x)


def _zuko(name: str) -> Example:
    return Example(_Density(name).eval(), (torch.randn(4, 3), torch.randn(4, 2)), {}, (BATCH, BATCH))


def _tabnet() -> Example:
    from pytorch_tabnet.tab_network import TabNet

    model = TabNet(8, 3, cat_idxs=[1], cat_dims=[5], cat_emb_dim=[2], group_attention_matrix=torch.eye(8))
    x = torch.rand(6, 8)
    x[:, 1] = torch.randint(0, 5, (6,)).float()
    return Example(model.eval(), (x,), {}, (BATCH,))


def _ft_transformer() -> Example:
    from tab_transformer_pytorch import FTTransformer

    model = FTTransformer(categories=(4, 6), num_continuous=3, dim=16, depth=1, heads=2, dim_head=8)
    categories = torch.stack([torch.randint(0, 4, (5,)), torch.randint(0, 6, (5,))], 1)
    return Example(model.eval(), (categories, torch.randn(5, 3)), {}, (BATCH, BATCH))


def _rtdl() -> Example:
    from rtdl_revisiting_models import FTTransformer

    model = FTTransformer(
        n_cont_features=3,
        cat_cardinalities=[4, 6],
        d_out=2,
        n_blocks=1,
        d_block=16,
        attention_n_heads=2,
        attention_dropout=0.1,
        ffn_d_hidden_multiplier=1.5,
        ffn_dropout=0.1,
        residual_dropout=0.0,
    )
    categories = torch.stack([torch.randint(0, 4, (5,)), torch.randint(0, 6, (5,))], 1)
    return Example(model.eval(), (torch.randn(5, 3), categories), {}, (BATCH, BATCH))


def _tcn(**options: Any) -> Example:
    from pytorch_tcn import TCN

    model = TCN(4, [8, 8, 8], kernel_size=3, **options)
    return Example(model.eval(), (torch.randn(2, 4, 30),), {}, (SERIES,))


def _interpretable_attention() -> Example:
    from pytorch_forecasting.models.temporal_fusion_transformer.sub_modules import InterpretableMultiHeadAttention

    model = InterpretableMultiHeadAttention(2, 16)
    args = (torch.randn(2, 5, 16), torch.randn(2, 9, 16), torch.randn(2, 9, 16))
    keys = {0: "batch", 1: "keys"}
    return Example(model.eval(), args, {}, ({0: "batch", 1: "queries"}, keys, keys))


def _nbeats() -> Example:
    from pytorch_forecasting.models.nbeats.sub_modules import NBEATSSeasonalBlock

    model = NBEATSSeasonalBlock(16, backcast_length=12, forecast_length=6)
    return Example(model.eval(), (torch.randn(3, 12),), {}, (BATCH,))


def _metric_learning(name: str, **options: Any) -> Example:
    from pytorch_metric_learning import distances

    model = getattr(distances, name)(**options)
    return Example(model.eval(), (torch.randn(4, 8), torch.randn(6, 8)), {}, ({0: "queries"}, {0: "gallery"}))


MODULES: dict[str, Factory] = {
    "torchmetrics/structural_similarity_index_measure": partial(
        _torchmetrics_images, "structural_similarity_index_measure", data_range=1.0
    ),
    "torchmetrics/multiclass_f1_score": _torchmetrics_f1,
    "torchmetrics/binary_auroc": _torchmetrics_auroc,
    "torchmetrics/scale_invariant_signal_distortion_ratio": _torchmetrics_sdr,
    "piq/SSIMLoss": partial(_piq, "SSIMLoss"),
    "piq/VIFLoss": partial(_piq, "VIFLoss"),
    "pytorch-msssim/MS_SSIM": _msssim,
    "torch-dct/dct_2d": partial(_dct, "dct_2d"),
    "torch-dct/idct_2d": partial(_dct, "idct_2d"),
    "pytorch-wavelets/DWTForward": partial(_wavelets, "DWTForward", J=2, wave="db2", mode="symmetric"),
    "pytorch-wavelets/DTCWTForward": partial(_wavelets, "DTCWTForward", J=2),
    "ptwt/wavedec2": _ptwt,
    "torchdiffeq/rk4": partial(_odeint, "rk4"),
    "torchdiffeq/dopri5": partial(_odeint, "dopri5"),
    "neuraloperator/FNO": _fno,
    "neuraloperator/UNO": _uno,
    "zuko/NSF": partial(_zuko, "NSF"),
    "zuko/MAF": partial(_zuko, "MAF"),
    "pytorch-tabnet/TabNet": _tabnet,
    "tab-transformer-pytorch/FTTransformer": _ft_transformer,
    "rtdl_revisiting_models/FTTransformer": _rtdl,
    "pytorch-tcn/TCN": _tcn,
    "pytorch-forecasting/InterpretableMultiHeadAttention": _interpretable_attention,
    "pytorch-forecasting/NBEATSSeasonalBlock": _nbeats,
    "pytorch-metric-learning/LpDistance": partial(_metric_learning, "LpDistance"),
}
