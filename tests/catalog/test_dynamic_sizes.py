"""Operators of real models whose results have sizes that are computed from dynamic sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from roundtrip import travel
from torch import Tensor, nn
from torch.nn import functional

from opbridge.errors import InputError

DYNAMIC = torch.export.Dim.DYNAMIC


class FourierUnit(nn.Module):
    """A convolution of a spectrum, as in LaMa: back to the size of the image, odd or even."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(6, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfftn(x, dim=(-2, -1), norm="ortho")
        parts = self.convolution(torch.cat([spectrum.real, spectrum.imag], 1)).relu()
        changed = torch.complex(*parts.chunk(2, 1))
        return torch.fft.irfftn(changed, s=x.shape[-2:], dim=(-2, -1), norm="ortho")


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inverse_transforms_to_dynamic_sizes(dtype: torch.dtype) -> None:
    example = torch.randn(2, 3, 8, 6, dtype=dtype)
    trip = travel(FourierUnit().to(dtype), (example,), dynamic_shapes=({0: DYNAMIC, 2: DYNAMIC, 3: DYNAMIC},))
    for size in ((1, 3, 5, 7), (3, 3, 16, 2), (2, 3, 8, 6)):
        trip.check(torch.randn(size, dtype=dtype))


class BlockConvolution(nn.Module):
    """A convolution by transforms of overlapping blocks, as in julius."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(2, 3, 9))

    def forward(self, x: Tensor) -> Tensor:
        taps = self.weight.shape[-1]
        block = min(taps * 5, x.shape[-1])
        step = block - taps + 1
        count = -(-(x.shape[-1] - block) // step) + 1
        blocks = functional.pad(x, (0, (count - 1) * step + block - x.shape[-1])).unfold(-1, block, step)
        products = torch.einsum(
            "bcft,dct->bdft", torch.fft.rfft(blocks), torch.fft.rfft(self.weight, block).conj_physical()
        )
        found = torch.fft.irfft(products, block)[..., : -taps + 1].flatten(-2)
        return found[..., : x.shape[-1] - taps + 1]


@pytest.mark.sweep
def test_a_convolution_by_transforms_of_blocks() -> None:
    model = BlockConvolution()
    trip = travel(model, (torch.randn(2, 3, 100),), dynamic_shapes=({0: DYNAMIC, 2: DYNAMIC},))
    for length in (100, 137, 46, 45, 30):
        trip.check(torch.randn(1, 3, length), atol=1e-4)


@pytest.mark.slow
def test_windows_of_a_dynamic_length() -> None:
    def model(x: Tensor) -> Tensor:
        return x.unfold(1, x.shape[1] // 2, x.shape[1] // 4)

    trip = travel(model, (torch.randn(2, 8, 3),), dynamic_shapes=({1: DYNAMIC},))
    for length in (8, 13, 4):
        trip.check(torch.randn(2, length, 3))


def test_a_quotient_of_sizes_is_rounded_down() -> None:
    def model(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        difference = y.shape[0] - x.shape[0]
        return x[: -(-x.shape[0] // 3)], x.new_ones(difference // 3 + 10), x.new_ones(difference // -4 + 10)

    trip = travel(model, (torch.randn(8), torch.randn(6)), dynamic_shapes=({0: DYNAMIC}, {0: DYNAMIC}))
    for first, second in ((8, 6), (7, 9), (3, 4), (12, 3), (3, 12)):
        trip.check(torch.randn(first), torch.randn(second))


@pytest.mark.slow
def test_sizes_that_are_computed_in_floating_point() -> None:
    """In float32 18 / 1.2 is less than 15, and 160001 * 11025 is not exact."""

    def model(x: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[0]
        samples = torch.sym_int((n + 160_000) * 11_025 / 16_000) - 110_000
        sizes = (torch.sym_int(n / 1.2), math.ceil(n * 0.7), math.floor(2.0 - n * 0.1) + 9, round(n * 0.5), samples)
        ranges = (torch.arange(0, n, 1.3), torch.arange(n * 0.1), torch.arange(n, 0, -1 / n))
        return *(x.new_ones(size) for size in sizes), *ranges

    trip = travel(model, (torch.randn(12),), dynamic_shapes=({0: DYNAMIC},))
    for length in (12, 18, 26, 30, 36, 60, 7, 35):
        trip.check(torch.randn(length))


def test_numbers_that_are_rounded_are_as_exact_as_in_python() -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[0]
        numbers = (int(math.log(n) * 1e8), round(math.sin(n) * 1e9), math.floor(math.exp(-n) * 1e12))
        return torch.tensor(numbers), x.double() * (n * 0.3 % 0.7), x * (n // 0.1)

    trip = travel(model, (torch.randn(12),), dynamic_shapes=({0: DYNAMIC},))
    for length in (2, 7, 19, 33):
        trip.check(torch.randn(length))


def test_numbers_of_sizes_are_as_exact_as_float64_tensors() -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        height, width = x.shape
        return x * (height / width), x + height * 0.1, torch.scalar_tensor(width / 3, dtype=torch.float64)

    trip = travel(model, (torch.randn(3, 5).double(),), dynamic_shapes=({0: DYNAMIC, 1: DYNAMIC},))
    for shape in ((7, 3), (11, 13)):
        trip.check(torch.randn(shape).double(), rtol=1e-14, atol=1e-14)


def test_integers_times_a_dynamic_number() -> None:
    trip = travel(
        lambda x, ids: ids * (x.shape[0] - 2.5),
        (torch.randn(4), torch.tensor([[3, 0, 1]])),
        dynamic_shapes=({0: DYNAMIC}, None),
    )
    trip.check(torch.randn(7), torch.tensor([[2, 5, -1]]))


@pytest.mark.slow
def test_quotients_that_are_rounded_and_windows_by_strides() -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[1]
        count = math.ceil((n - 4) / 3) + 1
        padded = nn.functional.pad(x, (0, 3 * count + 1 - n))
        windows = padded.as_strided((x.shape[0], count, 4), (padded.stride(0), 3, padded.stride(1)))
        return windows, x.new_ones(math.floor((2 - n) / 3) + 20)

    trip = travel(model, (torch.randn(2, 12),), dynamic_shapes=({0: DYNAMIC, 1: DYNAMIC},))
    for size in ((2, 12), (3, 13), (2, 31), (4, 8)):
        trip.check(torch.randn(size))


RECURRENT = {
    "lstm": nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
    "gru": nn.GRU(3, 4),
    "tanh": nn.RNN(3, 4, batch_first=True),
    "relu": nn.RNN(3, 4, num_layers=2, bidirectional=True, nonlinearity="relu"),
}


@pytest.mark.quick("tanh", every=3)
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_of_dynamic_length_twice_in_one_process(name: str) -> None:
    model = RECURRENT[name].requires_grad_(False)
    for _ in range(2):
        trip = travel(model, (torch.randn(2, 5, 3),), dynamic_shapes=({0: DYNAMIC, 1: DYNAMIC},))
        assert not {"Loop", "Scan"} & set(trip.op_types)
        for size in ((3, 9, 3), (1, 2, 3), (2, 1, 3)):
            trip.check(torch.randn(size))


@pytest.mark.slow
def test_an_lstm_with_a_projection() -> None:
    model = nn.LSTM(3, 4, proj_size=2, batch_first=True).requires_grad_(False)
    trip = travel(model, (torch.randn(2, 5, 3),), dynamic_shapes=({0: DYNAMIC},))
    trip.check(torch.randn(3, 5, 3))
    if torch.__version__ < "2.15":
        with pytest.raises(InputError, match="proj_size"):
            travel(model, (torch.randn(2, 5, 3),), dynamic_shapes=({1: DYNAMIC},))
        return
    trip = travel(model, (torch.randn(2, 5, 3),), dynamic_shapes=({1: DYNAMIC},))
    trip.check(torch.randn(2, 8, 3))


def _made_from_sizes(x: Tensor) -> tuple[Tensor, ...]:
    """A size as the argument of functions in which torch would make it constant."""
    n = x.shape[0]
    quotient, remainder = divmod(n, 3)
    return (
        torch.logspace(0, 1, n),
        torch.tril_indices(n, n),
        torch.triu_indices(n, n + 1, offset=1, dtype=torch.int32),
        torch.fft.fftfreq(n),
        torch.fft.rfftfreq(n, 0.5),
        functional.one_hot(torch.arange(n), n),
        (x @ x.T).fill_diagonal_(float("-inf")).softmax(-1),
        (x > 0).fill_diagonal_(True),
        x[:, :2].clone().fill_diagonal_(0.5, wrap=True),
        (x[:, :1, None] + torch.zeros(n, n)).fill_diagonal_(7),
        torch.vander(x[:, 0], increasing=True),
        torch.vander(x[:, 0], N=3),
        x.repeat_interleave(n, 0),
        x.repeat_interleave(n),
        torch.cat(x.tensor_split(3, 0)[::-1]),
        x[: torch.div(n, 2, rounding_mode="trunc")] * torch.div(n, 3, rounding_mode="floor"),
        x.T.as_strided((x.shape[1] - 1, n, 2), (x.T.stride(0), x.T.stride(1), x.T.stride(0))),
        x[:quotient] + remainder,
        x * math.log(n),
        x[: int(math.log2(n))],
        functional.affine_grid(x[:2, :3][None], [1, 1, n, 4], align_corners=False),
        functional.affine_grid(torch.eye(3, 4)[None], [1, 1, 2, n, 4], align_corners=True),
    )


def _computed_with_sizes(x: Tensor) -> tuple[Tensor, ...]:
    """Functions of a size, which Python would compute once."""
    n = x.shape[0]
    numbers = (math.exp(-n), math.sin(n), math.tanh(0.1 * n), math.hypot(n, 3), math.gcd(n, 6), math.log(n, 2))
    of_several = (math.fsum([n, 0.5]), math.dist((n, 1), (2, n)), math.remainder(n, 4), math.prod([n, 2, n]))
    of_two = (math.fmod(n, -3), math.copysign(2, 5 - n), math.pow(n, 0.5), math.atan2(n, 3), math.fabs(5 - n))
    return (
        functional.pad(x, (0, 1), value=n - 1),
        functional.pad(x, (2, -1), value=x.amin().item()),
        *(x * number for number in (*numbers, *of_several, *of_two)),
        x[: math.isqrt(n)],
        x[: math.floor(math.log10(10 * n))],
        x[: n >> 1],
        functional.pad(x, (0, 0, 0, n << 2)),
        x * (n & 3) + (3 & n),
    )


def _pooled_by_sizes(x: Tensor) -> tuple[Tensor, ...]:
    image, half = x[None, None], x.shape[0] // 2
    return (
        functional.avg_pool2d(image, x.shape),
        functional.avg_pool2d(image, (half, 2)),
        functional.avg_pool1d(x.T, x.shape[0]),
        functional.max_pool2d(image, kernel_size=image.shape[2:]),
        functional.max_pool2d(image, (half, 2), stride=(1, half)),
        torch.max_pool1d(x.T, [half]),
        torch.max_pool1d(x.T, 2, []),
        functional.max_pool1d(x.T, (3,), 2, 1, ceil_mode=True),
        nn.MaxPool1d(2, dilation=2, return_indices=True)(x.T)[1],
        functional.lp_pool1d(x.T, 2, half),
        functional.adaptive_max_pool2d(image, (half, None)),
        functional.adaptive_max_pool1d(x.T, x.shape[0] - 1),
        nn.MaxPool3d((1, half, 1), (1, half, 2))(image[None]),
    )


def _windows_of_sizes(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[0]
    return (
        torch.hann_window(n),
        torch.hann_window(n, False, dtype=torch.float64),
        torch.hamming_window(n, periodic=True, alpha=0.5, beta=0.4),
        torch.hamming_window(n),
        torch.bartlett_window(n, periodic=False),
        torch.blackman_window(n),
        torch.kaiser_window(n, True, 8.0),
    )


def _norms_of_matrices(x: Tensor) -> tuple[Tensor, ...]:
    images = x[:, None, :].expand(-1, 3, -1) * torch.arange(1.0, 4)[:, None].sqrt()
    return (
        torch.linalg.matrix_norm(images, 2),
        torch.linalg.matrix_norm(images, -2, (2, 0), keepdim=True),
        torch.linalg.norm(x, 2),
        torch.linalg.norm(images, 1, (0, 2)),
    )


def _levels(x: Tensor) -> tuple[Tensor, ...]:
    """The points of several levels, whose sizes are rows of a tensor, as in deformable attention."""
    shapes = torch.tensor([x.shape, [x.shape[0] // 2, 3]])
    starts = torch.cat([shapes.new_zeros(1), shapes.prod(1).cumsum(0)[:-1]])
    points = torch.cat([x.flatten(), x[: x.shape[0] // 2, :3].flatten()])
    results = []
    for level, (height, width) in enumerate(shapes):
        rows = torch.linspace(0.5, height - 0.5, height) / height
        part = points[starts[level] : starts[level] + height * width].reshape(height, width)
        results.append(part * rows[:, None] + torch.arange(width))
    return tuple(results)


@pytest.mark.quick("_levels", every=0)
@pytest.mark.parametrize(
    ("model", "lengths"),
    [
        (_made_from_sizes, (8, 9, 5, 16)),
        (_computed_with_sizes, (8, 9, 100, 3)),
        (_pooled_by_sizes, (8, 9, 5)),
        (_norms_of_matrices, (8, 7)),
        (_levels, (8, 9, 4)),
        (_windows_of_sizes, (8, 9, 2, 1)),
    ],
)
def test_a_size_as_an_argument(model: Callable[[Tensor], tuple[Tensor, ...]], lengths: tuple[int, ...]) -> None:
    trip = travel(model, (torch.randn(8, 6),), dynamic_shapes=({0: DYNAMIC},))
    for length in lengths:
        trip.check(torch.randn(length, 6))


def test_a_limit_of_elements_is_not_tried() -> None:
    """torch.quantile refuses more than 16 million elements."""
    travel(lambda x: x.quantile(0.3, 0), (torch.randn(8, 6),), dynamic_shapes=({0: DYNAMIC},)).check(torch.randn(9, 6))


@pytest.mark.sweep
def test_an_inverse_transform_of_frames_to_a_dynamic_length() -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        window = torch.hann_window(12)
        spectrum = torch.stft(x, 16, 4, 12, window, return_complex=True)
        whole = torch.stft(x, 16, 4, normalized=True, onesided=False, return_complex=True)
        return (
            torch.istft(spectrum, 16, 4, 12, window, length=x.shape[1]),
            spectrum[0].istft(16, 4, 12, window=window, length=x.shape[1] + 2),
            torch.istft(whole, 16, 4, normalized=True, onesided=False, length=x.shape[1] - 5),
        )

    trip = travel(model, (torch.randn(2, 50),), dynamic_shapes=({0: DYNAMIC, 1: DYNAMIC},))
    for length in (50, 51, 47, 100):
        trip.check(torch.randn(3, length), atol=1e-5)


def test_runs_along_a_dimension_counted_from_the_end() -> None:
    def runs(x: Tensor) -> tuple[Tensor, Tensor]:
        values, counts = x.unique_consecutive(return_counts=True, dim=-1)
        kept = values[0] > 0
        return values[:, kept], counts[kept]

    trip = travel(runs, (torch.tensor([[0, 1, 1, 2], [5, 5, 5, 5]]),), dynamic_shapes=({1: DYNAMIC},))
    for row in ([3], [0, 0, 1, 0, 2, 2], [4, 4, 4]):
        trip.check(torch.tensor([row, [7] * len(row)]))


def test_a_mask_of_rank_0_is_an_index() -> None:
    """As in the scores of torchmetrics, which are 0 or 1 where a quotient is not defined."""

    def score(x: Tensor) -> tuple[Tensor, ...]:
        squares, total, result = x.square().sum(), x.abs().sum(), torch.ones(())
        is_valid = (squares != 0) & (x.mean() > 0)
        result[is_valid] = 1 - squares[is_valid] / total[is_valid]
        result[squares == 0] = 0.5
        return result, x[is_valid].sum(0)

    trip = travel(score, (torch.tensor([1.0, 2.0, -1.0]),))
    for values in ([3.0, 2.0, 1.0], [-1.0, -2.0, -3.0], [0.0, 0.0, 0.0]):
        trip.check(torch.tensor(values))


MASKED_COLUMNS = torch.tensor([True, False, True, False])


def _masked_columns(x: Tensor, other: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    written, zeroed, changed = x.clone(), x.clone(), torch.stack([x, x])
    written[:, MASKED_COLUMNS] = other
    zeroed[:, mask] = 0.0
    changed[:, :, mask] += 1.0
    return written, zeroed, changed


@pytest.mark.slow
def test_columns_are_written_at_a_mask() -> None:
    """As in the inverse of a coupling layer."""
    trip = travel(_masked_columns, (torch.randn(3, 4), torch.randn(3, 2), MASKED_COLUMNS))
    for mask in ([True] * 4, [False] * 4, [False, True, True, False]):
        trip.check(torch.randn(3, 4), torch.randn(3, 2), torch.tensor(mask))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.uint8])
def test_whether_any_or_all_of_no_elements_are_true(dtype: torch.dtype) -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        return x.any(), x.any(1), x.any((0, 1), keepdim=True), x.all(), x.all(1), x.all((0, 1)), x.any(()), x.all(())

    trip = travel(model, (torch.ones(2, 3, 2).to(dtype),), dynamic_shapes=({0: DYNAMIC, 1: DYNAMIC},))
    for shape in ((2, 0, 2), (0, 3, 2), (2, 3, 2)):
        trip.check(torch.randint(0, 2, shape).to(dtype))
