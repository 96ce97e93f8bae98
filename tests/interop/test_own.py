"""Models of ours as transformers reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.apps.cli.main import main
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import Constraints, SearchConfig
from pellucid.interop.huggingface import read_pretrained
from pellucid.interop.own import write_as_huggingface
from pellucid.models import CausalLM, Seq2Seq
from pellucid.models.config import CausalLMConfig, Seq2SeqConfig
from pellucid.tasks import Seq2SeqTask
from pellucid.tasks.folder import save_model

MODELS: dict[str, dict[str, Any]] = {
    "pegasus": {"norm": "pre"},
    "gpt2": {},
}
CLASSES = {
    "pegasus": "PegasusForConditionalGeneration",
    "gpt2": "GPT2LMHeadModel",
}
SIZES: dict[str, Any] = {
    "d_model": 12, "num_attention_heads": 3, "ffn_dim": 17, "max_position_embeddings": 20,
}  # fmt: skip
TOKENIZER = train_tokenizer(["abcdefgh"], kind="char")
SOURCE, TARGET = [5, 6, 7, 8], [1, 9, 8]


def made(family: str) -> Any:
    """A model whose every number is its own: norms and biases too."""
    model: Any
    if family == "gpt2":
        model = CausalLM(CausalLMConfig(vocab_size=12, num_hidden_layers=2, **SIZES), seed=1)
    else:
        sizes = {"encoder_layers": 2, "decoder_layers": 1, "tie_embeddings": "all", **SIZES}
        config: Any = {**sizes, **MODELS[family]}
        model = Seq2Seq(Seq2SeqConfig(12, 12, **config), seed=1)
    draws = np.random.default_rng(0)
    for parameter in model.parameters():
        parameter.data[...] += draws.normal(0, 0.2, parameter.data.shape)
    return model.eval()


def logits(model: Any, target: list[int] = TARGET) -> np.ndarray:
    if isinstance(model, CausalLM):
        return np.asarray(model(Packed.of([target])))
    batch = Batch(Packed.of([SOURCE]), Packed.of([[*target, 2]]))
    return np.asarray(model.output(model.decode_rows(batch, inference=True)[0]))


def write(model: Any, folder: Path) -> str:
    files = {"tokenizer.json": TOKENIZER.to_json().encode()}
    search = SearchConfig(beam=2, max_length=9, length_penalty=0.5)
    return write_as_huggingface(model, search, files, folder)


@pytest.mark.parametrize("family", MODELS)
def test_a_model_is_written_as_the_family_that_computes_it(family: str, tmp_path: Path) -> None:
    model = made(family)
    assert write(model, tmp_path / "out") == family
    read = read_pretrained(tmp_path / "out")
    np.testing.assert_allclose(logits(read), logits(model), rtol=1e-4, atol=1e-5)
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == [CLASSES[family]]
    again = pellucid.load(tmp_path / "out")
    assert (again.search.beam, again.search.length_penalty) == (2, 0.5)
    again.generate(["abc"])


@pytest.mark.oracle("torch")
@pytest.mark.oracle("transformers")
@pytest.mark.parametrize("family", MODELS)
def test_transformers_computes_the_same_logits(family: str, tmp_path: Path) -> None:
    import torch
    import transformers

    model = made(family)
    write(model, tmp_path / "out")
    theirs, said = getattr(transformers, CLASSES[family]).from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not said["missing_keys"]  # transformers would tell its user to train the model
    assert not said["unexpected_keys"]
    given = {"input_ids": torch.tensor([SOURCE]), "decoder_input_ids": torch.tensor([TARGET])}
    if family == "gpt2":
        given = {"input_ids": torch.tensor([TARGET])}
    with torch.no_grad():
        found = theirs.eval()(**given).logits[0].numpy()
    np.testing.assert_allclose(logits(model), found, rtol=1e-4, atol=1e-5)
    answer = list(TARGET)
    while len(answer) < 8 and answer[-1] != 2:
        answer.append(int(logits(model, answer)[-1].argmax()))
    named = "input_ids" if family == "gpt2" else "decoder_input_ids"
    begun = {**given, named: torch.tensor([TARGET])}
    generated = theirs.generate(**begun, num_beams=1, do_sample=False, max_length=8)
    assert generated[0].tolist() == answer
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    begun = [1] if family == "gpt2" else []
    assert tokenizer("abc")["input_ids"] == begun + TOKENIZER.encode("abc")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm": "post"}, "the nearest, pegasus, has no norm = post"),
        ({"norm": "pre", "qk_norm": True}, "the nearest, pegasus, has no qk_norm = True"),
        ({"norm": "pre", "positions": "rotary"}, "the nearest, pegasus, has no positions = rotary"),
        (
            {"norm": "pre", "norm_type": "rms_norm"},
            "the nearest, pegasus, has no norm_type = rms_norm",
        ),
        (
            {"norm": "pre", "attention_scale": "d_k"},
            "the nearest, pegasus, has no attention_scale = d_k",
        ),
        ({"norm": "pre", "activation_function": "swiglu"}, "has no activation_function = swiglu$"),
        ({"norm": "pre", "positions": "relative"}, "pegasus, has no positions = relative$"),
        (
            {"norm": "pre", "tie_embeddings": "none"},
            "pegasus, has no tie_embeddings = none$",
        ),
    ],
)
def test_what_no_family_has_is_named(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = Seq2SeqConfig(12, 12, **{"tie_embeddings": "all", **SIZES, **settings})
    with pytest.raises(UserError, match=message):
        write(Seq2Seq(config), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_writes_a_model_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"tie_embeddings": "all", "norm": "pre", **SIZES}
    task = Seq2SeqTask.build(Seq2SeqConfig(**sizes), [TOKENIZER])
    save_model(tmp_path / "model", task, "")
    out = str(tmp_path / "out")
    assert main(["export", str(tmp_path / "model"), out, "--to", "huggingface"]) == 0
    shown = capsys.readouterr().out
    assert "pegasus, as transformers has it" in shown
    assert "answers may differ" not in shown
    texts = ["abc", "hg"]
    assert pellucid.load(out).generate(texts, max_length=5) == task.generate(texts, max_length=5)


def test_settings_of_the_search_that_transformers_has_otherwise_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Seq2SeqTask.build(
        Seq2SeqConfig(**{"tie_embeddings": "all", "norm": "pre", **SIZES}), [TOKENIZER]
    )
    limits = Constraints(repetition_penalty=1.5)
    search = SearchConfig(beam=2, length_penalty=0.6, constraints=limits)
    save_model(tmp_path / "model", replace(task, search=search), "")
    typed = ["export", str(tmp_path / "model"), str(tmp_path / "out"), "--to", "huggingface"]
    assert main(typed) == 0
    shown = capsys.readouterr().out
    assert "answers may differ by: length_penalty, which" in shown
    assert "; repetition_penalty and no_repeat_ngram, which are not written" in shown
