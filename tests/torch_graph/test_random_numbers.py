"""Models that run in threads leave the caller's random numbers as they were."""

from __future__ import annotations

import threading

import torch

from opbridge.torch_graph.eager import run_eager


def test_runs_in_two_threads_leave_the_generator_as_it_was() -> None:
    started = [threading.Event(), threading.Event()]

    class Drawing(torch.nn.Module):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            drawn = x + torch.rand(3)
            started[self.number].set()
            started[1 - self.number].wait(0.2)
            return drawn + torch.rand(3)

    results: dict[int, torch.Tensor] = {}

    def run(number: int) -> None:
        results[number] = run_eager(Drawing(number), (torch.zeros(3),), {}, seed=5)[0]

    torch.manual_seed(3)
    before = torch.get_rng_state()
    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.get_rng_state(), before)
    # Each of them draws what it draws alone.
    assert torch.equal(results[0], results[1])
