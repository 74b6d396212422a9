"""A detection head with operators that torch.onnx has no mapping for: cdist, searchsorted, cummax.

Nothing is declared here: the mappings come from opbridge's catalog. The number of candidates is dynamic.

    opbridge diagnose examples/detector_head.py:model
    opbridge export examples/detector_head.py:model -o build/detector_head
"""

import torch
from torch import nn


class DetectorHead(nn.Module):
    """Candidates' features to boxes, their nearest anchors, score buckets and the best score so far."""

    def __init__(self, features: int, anchors: int) -> None:
        super().__init__()
        self.box = nn.Linear(features, 4)
        self.score = nn.Linear(features, 1)
        self.register_buffer("anchors", torch.rand(anchors, 2))
        self.register_buffer("bucket_edges", torch.linspace(0.1, 0.9, 9))

    def forward(self, candidates):
        centre, log_size = self.box(candidates).split(2, dim=-1)
        size = log_size.exp()
        boxes = torch.cat([centre - size / 2, centre + size / 2], dim=-1)
        scores = self.score(candidates).squeeze(-1).sigmoid()

        # torch's default mode takes a less exact formula above 25 rows. This one is exact for any number of them.
        distances = torch.cdist(centre, self.anchors, compute_mode="donot_use_mm_for_euclid_dist")
        distance, anchor = distances.min(dim=1)
        bucket = torch.searchsorted(self.bucket_edges, scores)
        best_score, best_candidate = torch.cummax(scores, dim=0)
        return boxes, distance, anchor, bucket, best_score, best_candidate


def model():
    torch.manual_seed(0)
    return {
        "model": DetectorHead(16, anchors=12).eval(),
        "args": (torch.randn(20, 16),),
        "dynamic_shapes": {"candidates": {0: torch.export.Dim("candidates")}},
        "input_names": ["candidates"],
        "output_names": ["boxes", "distance", "anchor", "bucket", "best_score", "best_candidate"],
    }
