"""Training on PyTorch's tensors: the NumPy run's numbers, checkpoints that move, bfloat16."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ops.libraries import ON_A_GPU, without_dropout
from tests.oracles import oracle
from tests.training.copying import MODEL, TRAIN, Reversals, held_out, settings

import pellucid
from pellucid.compiled.engine import Engine
from pellucid.core.array import to_host
from pellucid.core.rng import Rng
from pellucid.generation import GREEDY, compile_model
from pellucid.kernels.device import place
from pellucid.models import CausalLM, CausalLMConfig, MaskedLM, MaskedLMConfig, Seq2Seq
from pellucid.optim import OPTIMIZERS
from pellucid.optim.config import OptimizerConfig
from pellucid.training.run import RunFolder
from pellucid.training.trainer import Trainer

pytestmark = pytest.mark.oracle("torch")
torch = oracle("torch")

SMALL: dict[str, Any] = {
    "vocab_size": 11, "d_model": 12, "num_attention_heads": 3, "ffn_dim": 17, "dropout": 0.1,
    "num_hidden_layers": 2, "max_position_embeddings": 13,
}  # fmt: skip
MODELS: dict[str, Callable[[Any], Any]] = {
    "seq2seq": lambda dtype: Seq2Seq(replace(MODEL, padding_row_zero=True), seed=3, dtype=dtype),
    "causal_lm": lambda dtype: CausalLM(CausalLMConfig(**SMALL), seed=3, dtype=dtype),
    "masked_lm": lambda dtype: MaskedLM(
        MaskedLMConfig(**SMALL, masked_share=0.6), seed=3, dtype=dtype
    ),
}
STEPS = 20


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These tensors are small: threads that wait for each other would take most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(model: Any, device: str, precision: Any = "float32", **changes: Any) -> Trainer:
    place(model, device, precision)
    config = replace(TRAIN, **{"steps": STEPS, **changes})
    trainer = Trainer(model, Reversals(), config, validation=held_out())
    trainer.fit()
    return trainer


def weights(trainer: Trainer) -> dict[str, np.ndarray]:
    return {name: to_host(x) for name, x in trainer.model.state_dict().items()}


@pytest.mark.parametrize("kind", MODELS)
def test_twenty_steps_equal_the_numpy_run(kind: str) -> None:
    """Dropout on, gradients clipped, labels smoothed, and each batch in two parts."""
    here, there = (
        trained(MODELS[kind](np.float64), device, accumulate=2) for device in ("cpu", "torch:cpu")
    )
    assert all(isinstance(p.data, torch.Tensor) for p in there.model.parameters())
    expected, found = weights(here), weights(there)
    moved = weights_before(kind)
    for name, x in expected.items():
        assert np.abs(found[name] - x).max() <= 1e-10 * max(np.abs(x).max(), 1.0), name
    assert max(np.abs(expected[name] - moved[name]).max() for name in expected) > 0.01
    assert there.state.best_score == pytest.approx(here.state.best_score, rel=1e-11)
    own = here.optimizer.state_dict()
    for name, array in there.optimizer.state_dict().items():
        np.testing.assert_allclose(array, own[name], rtol=0, atol=1e-10)


def weights_before(kind: str) -> dict[str, np.ndarray]:
    return {name: to_host(x) for name, x in MODELS[kind](np.float64).state_dict().items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizers_page_steps_tensors_as_it_does_arrays(name: str) -> None:
    with pellucid.reference():  # without kernels: every optimizer has a fused step
        found = [
            trained(
                MODELS["seq2seq"](np.float64), device,
                optimizer=OptimizerConfig(name), steps=2, use="ema",
            )
            for device in ("cpu", "torch:cpu")
        ]  # fmt: skip
    for (key, x), y in zip(weights(found[0]).items(), weights(found[1]).values(), strict=True):
        if not key.endswith("in_proj_bias"):  # the key's has no gradient but rounding
            np.testing.assert_allclose(y, x, rtol=0, atol=1e-10, err_msg=key)
    first, second = (run.optimizer.state_dict() for run in found)
    for name in first:
        np.testing.assert_allclose(second[name], first[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("devices", [("cpu", "torch:cpu"), ("torch:cpu", "cpu")])
def test_a_run_is_resumed_on_another_device(
    devices: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint says nothing of devices but in the record of its environment."""
    config = replace(TRAIN, steps=8, validate_every=8)
    expected = MODELS["seq2seq"](np.float64)
    for device in devices:
        model = MODELS["seq2seq"](np.float64)
        place(model, device)
        named = {} if device == "cpu" else {"device": device}
        resumed = device == devices[1]
        with RunFolder(tmp_path, settings(config), resume=resumed, device=named) as run:
            trainer = Trainer(model, Reversals(), config, validation=held_out(), run=run)
            assert trainer.state.step == (4 if resumed else 0)
            trainer.fit()
        if not resumed:  # as if it had been killed after step 4
            shutil.rmtree(tmp_path / "checkpoints" / "step-00000008")
    assert "device: " in caplog.text
    Trainer(expected, Reversals(), config, validation=held_out()).fit()
    for name, x in expected.state_dict().items():
        np.testing.assert_allclose(to_host(model.state_dict()[name]), x, rtol=0, atol=1e-10)


def test_bfloat16_learns_what_float32_does_and_keeps_float32_weights() -> None:
    wide = trained(MODELS["seq2seq"](np.float32), "torch:cpu", steps=60)
    narrow = trained(MODELS["seq2seq"](np.float32), "torch:cpu", "bfloat16", steps=60)
    for name, parameter in narrow.model.named_parameters():
        assert parameter.data.dtype == torch.bfloat16, name
        assert parameter.grad.dtype == parameter.learnt.dtype == torch.float32, name
        assert torch.equal(parameter.data, parameter.learnt.bfloat16()), name
    assert all(x.dtype == np.float32 for x in weights(narrow).values())
    assert wide.state.best_score is not None
    assert narrow.state.best_score == pytest.approx(wide.state.best_score, rel=0.02)
    assert narrow.state.best_score < 2.1  # the first step's was 3.2


def test_small_steps_are_not_lost_in_bfloat16() -> None:
    """A step far below the eighth bit of a weight moves it in the end."""
    model = MODELS["seq2seq"](np.float32)
    place(model, "torch:cpu", "bfloat16")
    weight = model.output.weight
    before = to_host(weight.learnt).copy()
    weight.learnt.sub_(1e-6)
    assert np.abs(to_host(model.state_dict()["output.weight"]) - before).max() > 0
    loaded = {name: to_host(x).copy() for name, x in model.state_dict().items()}
    model.load_state_dict(loaded)
    np.testing.assert_array_equal(to_host(weight.learnt), loaded["output.weight"])
    assert weight.data.dtype == torch.bfloat16
    place(model, "cpu")
    assert weight.master is None
    np.testing.assert_array_equal(weight.data, loaded["output.weight"])


def test_answers_are_compiled_from_what_was_learnt_on_a_device() -> None:
    """Of a narrowed model too, which stays where it is; the copy has no part of it."""
    model = MODELS["seq2seq"](np.float32)
    source = held_out()[0].source
    expected = compile_model(model).search(source, GREEDY)
    place(model, "torch:cpu", "bfloat16")
    engine = compile_model(model)
    assert isinstance(engine, Engine)
    assert engine.search(source, GREEDY) == expected
    assert all(p.data.dtype == torch.bfloat16 for p in model.parameters())


@pytest.mark.skipif(not ON_A_GPU["torch-cuda"](), reason="needs a GPU: no /dev/nvidiactl here")
@pytest.mark.parametrize("kind", MODELS)
def test_on_a_gpu_twenty_steps_equal_the_cpus(kind: str) -> None:
    """float64 first: all but attention is fused there too; then float32 by its loss."""
    for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 1e-3)):
        losses = []
        for device in ("cpu", "cuda"):
            model = without_dropout(MODELS[kind](dtype))
            losses.append(trained(model, device).state.best_score)
        assert losses[0] == pytest.approx(losses[1], rel=tolerance)


def test_the_rng_of_a_part_is_not_that_of_another() -> None:
    from pellucid.kernels.torch.draws import seed_of

    batch = Reversals().epoch(0)[0]
    rng = Rng(5).fold(1)
    seeds = {seed_of(rng.at(part.source.rows)) for part in batch.split(3)}
    assert len(seeds) == 3
