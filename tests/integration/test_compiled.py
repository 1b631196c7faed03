"""torch.compile(model, backend="redalg") on a CPU, with every group put: beside eager PyTorch.

float32     1e-5 of the largest output, and of the largest number of a gradient
16 bits     the error beside float32 is at most 1.1 times eager's own
sizes       one compilation for inputs of several lengths, or of several pictures
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from redalg.torch.records import recorded_reports
from tests.integration.catalogue import MODELS, Inputs, Sample, tensors_of
from tests.integration.coverage import Coverage, Recorded

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]
PREDICTED = {"redalg.gate": "predicted"}
BOUND, NARROW_BOUND = 1e-5, 1.1
ALONE = {"GPT-2": 1, "Llama": 1, "Qwen 3": 1, "Gemma 2": 2, "Gemma 3": 1, "GPT-OSS": 2, "Mixtral": 3, "DeepSeek-V3": 2,
         "Swin": 2, "CRNN": 1}  # fmt: skip
"""Model -> its reductions that are in no group, where there are any: docs/GRAPHS.md has the reasons."""
NARROW = ("BERT", "Llama", "Gemma 3", "T5", "ViT", "Swin", "MMoE")
TRAINED = ("BERT", "Llama", "ViT", "Swin")
VARIED = tuple(name for name, sample in MODELS.items() if len(sample.sizes) > 1)


def error(found: Any, wanted: Any) -> float:
    """The largest error of any of a model's results, of the result's largest number."""
    pairs = zip(tensors_of(found), tensors_of(wanted), strict=True)
    return max(float((one.double() - each.double()).abs().max() / each.abs().max()) for one, each in pairs)


def drawn(name: str) -> tuple[Sample, nn.Module, Inputs]:
    """A model by its name, and inputs."""
    torch.manual_seed(0)
    sample = MODELS[name]
    return sample, sample.make().eval(), sample.draw(sample.sizes[0])


@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model_is_the_model(name: str) -> None:
    sample, model, inputs = drawn(name)
    recorded = Recorded()
    run = torch.compile(model, backend="redalg", options={**PREDICTED, "post_grad_custom_post_pass": recorded})
    with torch.no_grad(), recorded_reports() as reports:
        assert error(run(*inputs), model(*inputs)) <= BOUND
    decisions = [each.decision for report in reports for each in report.groups]
    covered = sum(recorded.found, Coverage())
    assert not any(report.failure for report in reports)
    assert [str(each) for each in decisions if not each.is_put] == []
    assert bool(decisions) is bool(covered.grouped)
    assert covered.share >= sample.share, covered.left
    assert sum(covered.alone.values()) == ALONE.get(name, 0), covered.alone


@pytest.mark.parametrize("name", NARROW)
def test_an_error_of_16_bits_is_eagers(name: str) -> None:
    """The root of the mean square over several inputs: of one input the largest error is a matter of luck."""
    sample, model, _ = drawn(name)
    narrow = copy.deepcopy(model).bfloat16()
    run = torch.compile(narrow, backend="redalg", options=PREDICTED)
    several = [sample.draw(sample.sizes[0]) for _ in range(8)]
    with torch.no_grad(), recorded_reports() as reports:
        mine, eagers = (narrow_error(each, model, several) for each in (run, narrow))
    assert mine <= NARROW_BOUND * eagers
    assert any(each.decision.is_put for report in reports for each in report.groups)


def narrow_error(run: Any, model: nn.Module, several: list[Inputs]) -> float:
    """The root of the mean square error in 16 bits, beside the model in 32."""
    errors = list[torch.Tensor]()
    for inputs in several:
        given = (each.bfloat16() if each.is_floating_point() else each for each in inputs)
        pairs = zip(tensors_of(run(*given)), tensors_of(model(*inputs)), strict=True)
        errors += [(found.double() - wanted.double()).flatten() for found, wanted in pairs]
    return float(torch.cat(errors).square().mean().sqrt())


@pytest.mark.parametrize("name", VARIED)
def test_sizes_may_vary(name: str) -> None:
    sample, model, _ = drawn(name)
    run = torch.compile(model, backend="redalg", dynamic=True, options=PREDICTED)
    with torch.no_grad(), recorded_reports() as reports:
        for size in sample.sizes:
            inputs = sample.draw(size)
            assert error(run(*inputs), model(*inputs)) <= BOUND
    assert not any(report.failure for report in reports)


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_are_eagers(name: str) -> None:
    _, model, inputs = drawn(name)
    run = torch.compile(model, backend="redalg", options=PREDICTED)
    with recorded_reports() as reports:
        found, wanted = (gradients(each, model, inputs) for each in (run, model))
    largest = max(float(each.abs().max()) for each in wanted.values())
    assert found.keys() == wanted.keys()
    for parameter, gradient in wanted.items():
        assert float((found[parameter] - gradient).abs().max()) <= BOUND * largest, parameter
    assert any(each.decision.is_put for report in reports for each in report.groups)


def gradients(run: Any, model: nn.Module, inputs: Inputs) -> dict[str, torch.Tensor]:
    """The gradients of a loss, by the parameters' names; of inputs too that are no integers."""
    given = [each.clone().requires_grad_(each.is_floating_point()) for each in inputs]
    model.zero_grad(set_to_none=True)
    output = run(*given)
    torch.manual_seed(1)
    (output * torch.randn_like(output)).sum().backward()
    named = {**dict(model.named_parameters()), **{f"input {number}": each for number, each in enumerate(given)}}
    return {name: each.grad for name, each in named.items() if each.grad is not None}
