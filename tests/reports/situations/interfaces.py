"""What a model takes and returns: variadic arguments, containers, classes, scripted parts."""

from __future__ import annotations

import dataclasses

import torch
from side_by_side import Situation
from torch import nn
from torch.export import Dim

from situations.report import Report

D = Dim.DYNAMIC


class TakesAnything(nn.Module):
    """A wrapper whose forward is (*args, **kwargs), as peft and diffusers have it."""

    def __init__(self):
        super().__init__()
        self.base_model = nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, *args, **kwargs):
        return self.base_model(*args, **kwargs).sigmoid()


class TransformersLike(nn.Module):
    """Ids, and flags in **kwargs."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(30, 8), nn.Linear(8, 30)

    def forward(self, input_ids, **kwargs):
        logits = self.head(self.embed(input_ids))
        return {"logits": logits} if kwargs.get("return_dict") else (logits,)


class TwoKeywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.ones(4, 4)

    def forward(self, start, end):
        return start.sum() * self.a + end.sum()


@dataclasses.dataclass
class UNetOutput:
    sample: torch.Tensor
    hidden: tuple[torch.Tensor, ...] | None = None
    extra: torch.Tensor | None = None


class ReturnsDataclass(nn.Module):
    """The output class of diffusers' models: a dataclass that nobody registered."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, sample, timestep):
        hidden = self.conv(sample) * timestep[:, None, None, None]
        return UNetOutput(sample=sample + hidden, hidden=(hidden,))


class TakesConfiguredDict(nn.Module):
    """A dict of tensors, one of them nested."""

    def forward(self, batch):
        scale = batch["meta"]["scale"]
        return {"sum": (batch["image"] * scale).sum((1, 2)), "image": batch["image"]}


@torch.jit.script
def scripted_scale(text: torch.Tensor, lengths: torch.Tensor):
    lengths = lengths.to(dtype=torch.float32)
    return text / lengths.unsqueeze(1), lengths.sum()


class CallsScripted(nn.Module):
    """A function and a submodule that were compiled by TorchScript."""

    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(nn.Sequential(nn.Linear(5, 5), nn.ReLU()))

    def forward(self, text, lengths):
        scaled, total = scripted_scale(text, lengths)
        return self.inner(scaled), total


class OptionalInput(nn.Module):
    """A control image that is left out."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 3, padding=1)

    def forward(self, x, control=None, scale=0.5):
        x = self.conv(x)
        return x * scale if control is None else x * scale + control


IMAGES = {0: Dim("B"), 2: Dim("H"), 3: Dim("W")}

REPORTS = (
    Report(
        "forward(*args, **kwargs) with dynamic sizes",
        "https://github.com/pytorch/pytorch/issues/148713",
        lambda: Situation(TakesAnything(), (torch.randn(2, 4, 6, 7),), dynamic_shapes={"args": (IMAGES,)}),
    ),
    Report(
        "forward(*args): shapes as a plain tuple",
        "https://github.com/pytorch/pytorch/issues/148629",
        lambda: Situation(TakesAnything(), (torch.randn(2, 4, 6, 7),), dynamic_shapes=((IMAGES,),)),
    ),
    Report(
        "flags in **kwargs",
        "https://github.com/pytorch/pytorch/issues/164313",
        lambda: Situation(
            TransformersLike(),
            (torch.randint(0, 30, (3, 8)),),
            {"return_dict": True},
            dynamic_shapes={"input_ids": {0: Dim.AUTO, 1: Dim.AUTO}, "kwargs": {"return_dict": None}},
        ),
    ),
    Report(
        "shapes for some of the arguments only",
        "https://github.com/pytorch/pytorch/issues/148564",
        lambda: Situation(
            TwoKeywords(),
            (),
            {"start": torch.rand(4, 4), "end": torch.rand(4, 4)},
            dynamic_shapes={"end": {0: Dim("end_dim")}},
        ),
    ),
    Report(
        "an output class that is not registered",
        "https://github.com/pytorch/pytorch/issues/98251",
        lambda: Situation(
            ReturnsDataclass(),
            (torch.randn(2, 3, 6, 6), torch.rand(2)),
            dynamic_shapes={"sample": {0: Dim("b"), 2: Dim("h")}, "timestep": {0: Dim("b")}},
        ),
    ),
    Report(
        "a nested dict as the input",
        "https://github.com/pytorch/pytorch/issues/120219",
        lambda: Situation(
            TakesConfiguredDict(),
            ({"image": torch.rand(2, 4, 5), "meta": {"scale": torch.rand(2, 1, 1)}},),
            dynamic_shapes={"batch": {"image": {0: Dim("b"), 1: Dim("h")}, "meta": {"scale": {0: Dim("b")}}}},
        ),
    ),
    Report(
        "TorchScript inside the model",
        "https://github.com/pytorch/pytorch/issues/127154",
        lambda: Situation(
            CallsScripted(),
            (torch.randn(3, 5), torch.tensor([4, 2, 5])),
            dynamic_shapes={"text": {0: Dim("b")}, "lengths": {0: Dim("b")}},
        ),
    ),
    Report(
        "an optional input that is left out",
        "https://github.com/pytorch/pytorch/issues/144852",
        lambda: Situation(
            OptionalInput(),
            (torch.randn(2, 2, 7),),
            {"control": None, "scale": 0.25},
            dynamic_shapes={"x": {0: D, 2: D}, "control": None, "scale": None},
        ),
    ),
)
