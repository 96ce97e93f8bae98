"""Models of ours as transformers reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.apps.cli.main import main
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.interop.huggingface import read_pretrained
from pellucid.interop.own import write_as_huggingface
from pellucid.models import CausalLM, Seq2Seq
from pellucid.models.config import CausalLMConfig, Seq2SeqConfig
from pellucid.tasks import Seq2SeqTask
from pellucid.tasks.folder import save_model

MODELS: dict[str, dict[str, Any]] = {
    "pegasus": {"norm": "pre"},
    "marian": {"final_norm": False, "activation_function": "silu", "embedding_scale": 1.0},
    "bart": {"final_norm": False, "positions": "learned", "embedding_norm": True},
    "gpt2": {},
}
CLASSES = {
    "pegasus": "PegasusForConditionalGeneration",
    "marian": "MarianMTModel",
    "bart": "BartForConditionalGeneration",
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
        model = Seq2Seq(Seq2SeqConfig(12, 12, **sizes, **MODELS[family]), seed=1)
    draws = np.random.default_rng(0)
    for parameter in model.parameters():
        parameter.data[...] += draws.normal(0, 0.2, parameter.data.shape)
    return model.eval()


def logits(model: Any) -> np.ndarray:
    if isinstance(model, CausalLM):
        return np.asarray(model(Packed.of([TARGET])))
    batch = Batch(Packed.of([SOURCE]), Packed.of([[*TARGET, 2]]))
    return np.asarray(model.output(model.decode_rows(batch, inference=True)[0]))


def write(model: Any, folder: Path) -> str:
    files = {"tokenizer.json": TOKENIZER.to_json().encode()}
    return write_as_huggingface(model, SearchConfig(beam=2, max_length=9), files, folder)


@pytest.mark.parametrize("family", MODELS)
def test_a_model_is_written_as_the_family_that_computes_it(family: str, tmp_path: Path) -> None:
    model = made(family)
    assert write(model, tmp_path / "out") == family
    read, _ = read_pretrained(tmp_path / "out")
    np.testing.assert_allclose(logits(read), logits(model), rtol=1e-4, atol=1e-5)
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == [CLASSES[family]]
    again = pellucid.load(tmp_path / "out")
    assert again.search.beam == 2
    assert len(again.generate(["abc"])) == 1


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
    assert all("embed_positions" in name for name in said["missing_keys"])  # a fixed table
    assert not said["unexpected_keys"]
    given = {"input_ids": torch.tensor([SOURCE]), "decoder_input_ids": torch.tensor([TARGET])}
    if family == "gpt2":
        given = {"input_ids": torch.tensor([TARGET])}
    with torch.no_grad():
        found = theirs.eval()(**given).logits[0].numpy()
    np.testing.assert_allclose(logits(model), found, rtol=1e-4, atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("abc", add_special_tokens=False)["input_ids"] == TOKENIZER.encode("abc")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm": "post"}, "marian: no final_norm = True"),
        ({"norm": "pre", "tie_embeddings": "none"}, "pegasus: no tie_embeddings = none"),
        ({"norm": "pre", "positions": "rotary"}, "pegasus: no positions = rotary"),
        ({"norm": "pre", "norm_type": "rms_norm"}, "pegasus: no norm_type = rms_norm"),
        ({"norm": "pre", "attention_scale": "d_k"}, "pegasus: no attention_scale = d_k"),
        ({"norm": "pre", "activation_function": "swiglu"}, "activation_function = 'swiglu'"),
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
    assert "pegasus, as transformers has it" in capsys.readouterr().out
    texts = ["abc", "hg"]
    assert pellucid.load(out).generate(texts, max_length=5) == task.generate(texts, max_length=5)
