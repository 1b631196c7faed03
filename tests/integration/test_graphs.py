"""Models as programs of tensor expressions: what is left to PyTorch, and eager PyTorch's numbers.

Memory-intensive is what is neither a convolution nor a product of matrices.
"""

from __future__ import annotations

import pytest
import torch

from redalg.graphs.analysis import Kind
from redalg.graphs.interpret import interpret_program
from tests.graphs.test_exploration import check_plan, found_in
from tests.integration.catalogue import MODELS, tensors_of
from tests.integration.coverage import LIBRARIES
from tests.torch.test_aten import exported

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_its_program(name: str) -> None:
    torch.manual_seed(0)
    sample = MODELS[name]
    model, inputs = sample.make().eval(), sample.draw(sample.sizes[0])
    imported, arrays = exported(model, inputs)
    left = [one for one in imported.program.externals() if one.operator not in LIBRARIES]
    count = len(list(imported.program.expressions()))
    assert count / (count + len(left)) >= sample.share, [(one.operator, one.reason) for one in left]
    found = interpret_program(imported.program, arrays, imported.compute)
    with torch.no_grad():
        wanted = tensors_of(model(*inputs))
    for each in wanted:
        near = [one for one in found.values() if one.shape == each.shape]
        assert min(float((one - each).abs().max() / each.abs().max()) for one in near) <= 1e-6


ATTENDED = {
    "BERT": 2, "BERT, one operator for attention": 2, "GPT-2": 2, "Llama": 2, "Qwen 3": 2, "Gemma 2": 2, "Gemma 3": 2,
    "GPT-OSS": 2, "Mixtral": 2, "DeepSeek-V3": 2, "T5": 2, "CLIP, text": 2, "Whisper, encoder": 2, "ViT": 2,
    "ViT, one operator for attention": 2, "Swin": 4, "ConvNeXt": 0, "MMoE": 0, "DIEN": 0,
}  # fmt: skip
"""Model -> its groups of scores, weights and what is weighted; 0 if it multiplies no scores."""


@pytest.mark.parametrize("name", ATTENDED)
def test_a_models_groups_compute_the_model(name: str) -> None:
    torch.manual_seed(0)
    sample = MODELS[name]
    imported, arrays = exported(sample.make().eval(), sample.draw(sample.sizes[0]))
    program = imported.program.live()
    candidates, plan = found_in(program)
    check_plan(program, plan, arrays, imported.compute)
    kinds = candidates.vertices.analysis.kinds
    products = [sum(kinds[name] is Kind.CONTRACTION for name in group.names) for group in plan.groups]
    assert products.count(2) == ATTENDED[name]
