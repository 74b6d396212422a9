"""RoI align for rotated boxes."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.sampling import pixels_of_samples


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2, 3, 9, 11, generator=generator)
    index = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    centre = torch.tensor([[8.0, 8.0], [20.0, 4.0], [2.0, 17.0], [11.0, 9.0]])
    size = torch.tensor([[6.0, 10.0], [14.0, 5.0], [9.0, 7.0], [0.5, 0.2]])
    angle = torch.tensor([[0.3], [-1.2], [2.0], [0.0]])
    rois = torch.cat([index, centre, size, angle], 1)
    return [
        Sample((image, rois, 3, 4, 0.5, 2, True, False), name="aligned"),
        Sample((image, rois, 2, 2, 0.5, 0, False, True), name="adaptive, clockwise"),
    ]


@operator("opbridge_vision::roi_align_rotated", samples=_samples)
def roi_align_rotated(
    input: Tensor,
    rois: Tensor,
    output_height: int,
    output_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    clockwise: bool,
) -> Tensor:
    """The mean of bilinear samples in each bin of each box: (boxes, channels, output_height, output_width).

    Args:
        input: (images, channels, height, width)
        rois: (boxes, 6): image, centre x and y, width, height, angle in radians.
        output_height: The bins of a box along its height.
        output_width: The bins of a box along its width.
        spatial_scale: The factor from the coordinates of the boxes to pixels of ``input``.
        sampling_ratio: The samples of a bin along each axis; 0 for one for each pixel of the bin, rounded up.
        aligned: Whether the centre of the first pixel is at 0.5, not 0. If not, boxes are at least a pixel large.
        clockwise: Whether positive angles turn clockwise in the image.
    """
    channels, height, width = input.shape[1:]
    shift = 0.5 if aligned else 0.0

    def of_bins(numbers: Tensor) -> Tensor:
        """A number of each box for each of its bins."""
        return numbers.reshape(-1, 1, 1).expand(-1, output_height, output_width)

    centre_x, centre_y, box_width, box_height = (
        of_bins(rois[:, 1 + k] * spatial_scale - (shift if k < 2 else 0.0)) for k in range(4)
    )
    if not aligned:
        box_width, box_height = box_width.clamp(min=1), box_height.clamp(min=1)
    angle = of_bins(-rois[:, 5] if clockwise else rois[:, 5])
    bin_height, bin_width = box_height / output_height, box_width / output_width
    bins_y = torch.arange(output_height).to(input.dtype)[:, None].expand(-1, output_width)
    bins_x = torch.arange(output_width).to(input.dtype).expand(output_height, -1)
    pixels = input.flatten(2).transpose(1, 2).flatten(0, 1)
    first = of_bins(rois[:, 0]).to(torch.int64) * (height * width)

    def sampled(step_y: Tensor, step_x: Tensor) -> Tensor:
        """One sample of every bin; the steps are between 0 and 1 in the bin."""
        along_y = (bins_y + step_y) * bin_height - box_height / 2
        along_x = (bins_x + step_x) * bin_width - box_width / 2
        y = along_y * angle.cos() - along_x * angle.sin() + centre_y
        x = along_y * angle.sin() + along_x * angle.cos() + centre_x
        total = torch.zeros((), dtype=input.dtype)
        for place, share in pixels_of_samples(y, x, height, width):
            total = total + pixels[first + place] * share[..., None]
        return total

    if sampling_ratio > 0:
        steps = (torch.arange(sampling_ratio).to(input.dtype) + 0.5) / sampling_ratio
        total = torch.stack([sampled(y, x) for y in steps.unbind() for x in steps.unbind()]).mean(0)
        return total.permute(0, 3, 1, 2)

    grid_y, grid_x = bin_height.ceil(), bin_width.ceil()
    number = (grid_y * grid_x).clamp(min=1)
    most = torch.cat([number.flatten(), number.new_ones(1)]).amax()

    def go_on(at: Tensor, total: Tensor) -> Tensor:
        return at < most

    def add(at: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        row = torch.div(at, grid_x.clamp(min=1), rounding_mode="floor")
        step_y, step_x = (row + 0.5) / grid_y.clamp(min=1), (at - row * grid_x + 0.5) / grid_x.clamp(min=1)
        factor = (at < grid_y * grid_x).to(input.dtype)[..., None]
        return at + 1, total + sampled(step_y, step_x) * factor

    empty = input.new_zeros((rois.shape[0], output_height, output_width, channels))
    _, total = torch.while_loop(go_on, add, (torch.zeros((), dtype=input.dtype), empty))
    return (total / number[..., None]).permute(0, 3, 1, 2)


@roi_align_rotated.fake
def _shape(input: Tensor, rois: Tensor, output_height: int, output_width: int, *options: float) -> Tensor:
    return input.new_empty(rois.shape[0], input.shape[1], output_height, output_width)


roi_align_rotated.kernel("roi_align_rotated.h")
