"""A process that trains a graph once; it says how often it explored, and how many groups it put."""

from __future__ import annotations

from unittest.mock import Mock, patch

import torch

from redalg.torch import groups
from redalg.torch.records import recorded_reports
from redalg.torch.stitch import calls_with_backwards


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT / 4, -1) @ v


def main() -> None:
    found = Mock(wraps=calls_with_backwards)
    given = [torch.randn(2, 12, 16).requires_grad_() for _ in range(3)]
    run = torch.compile(attend, backend="redalg", dynamic=True, options={"redalg.gate": "predicted"})
    with recorded_reports() as reports, patch.object(groups, "calls_with_backwards", found):
        run(*given).sum().backward()
    put = sum(each.decision.is_put for each in reports[0].groups)
    print(f"{found.call_count} explored, {put} put")


if __name__ == "__main__":
    main()
