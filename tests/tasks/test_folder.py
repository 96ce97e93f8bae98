"""A model folder with one damaged part is refused, and the part is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save, save_file
from tests.small import write_model

import pellucid
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.tasks import Seq2SeqTask
from pellucid.tasks.folder import load_model, save_model

HUGGINGFACE = Path(__file__).parents[1] / "fixtures" / "huggingface"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full(7, np.inf, np.float32), "holds values that are not finite"),
        (np.full(7, 3), "has elements of int64; expected float"),
        (np.ones(7, bool), "has elements of bool; expected float"),
        (np.ones(7, np.complex64), "has elements of complex64; expected float"),
        (np.array(3, np.int8), "is int8, which only matrices may be"),
    ],
)
def test_weights_that_are_no_finite_numbers_are_named(
    folder: Path, array: np.ndarray, message: str
) -> None:
    name = "encoder.layers.0.linear1.bias"
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {name: array}, folder / "model.safetensors")
    with pytest.raises(UserError, match=rf"model\.safetensors: {name}:? {message}"):
        load_model(folder)


def test_weights_of_more_bits_are_read(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    wide = {name: array.astype(np.float64) for name, array in weights.items()}
    save_file(wide, folder / "model.safetensors")
    for name, array in load_model(folder, accept_changes=True).model.state_dict().items():
        np.testing.assert_array_equal(array, weights[name])


def test_weights_in_bfloat16_are_read(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    upper = {n: (array.view(np.uint32) >> 16).astype(np.uint16) for n, array in weights.items()}
    content = save(upper)
    start = 8 + int.from_bytes(content[:8], "little")
    header = content[8:start].replace(b'"U16"', b'"BF16"')
    file.write_bytes(len(header).to_bytes(8, "little") + header + content[start:])
    for name, array in load_model(folder, accept_changes=True).model.state_dict().items():
        np.testing.assert_allclose(array, weights[name], rtol=2**-7)


@pytest.mark.parametrize("name", ["layer_norm_eps", "position_scale", "attention_scale"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_setting_that_is_no_finite_number_is_named(folder: Path, name: str, value: float) -> None:
    file = folder / "config.json"
    settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(settings | {name: value}), encoding="utf-8")
    with pytest.raises(UserError, match=rf"config\.json: {name} must be finite, got {value}"):
        load_model(folder)


@pytest.mark.parametrize("made_by", [2, None])
def test_a_model_of_another_format_is_left_to_its_version(
    folder: Path, made_by: int | None
) -> None:
    file = folder / "config.json"
    settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(settings | {"format": made_by}), encoding="utf-8")
    with pytest.raises(UserError, match=f"model format {made_by}, this Pellucid reads 1; read it"):
        load_model(folder, accept_changes=True)


def test_a_missing_tokenizer_of_the_target_is_named(tmp_path: Path) -> None:
    """A model with one for each side would read its targets with the source's."""
    source, target = (train_tokenizer([text], "char", None, ()) for text in ("hello", "there"))
    config = Seq2SeqConfig(source.vocab_size, target.vocab_size, d_model=6, num_attention_heads=2,
                           ffn_dim=7, encoder_layers=1, decoder_layers=1)  # fmt: skip
    folder = tmp_path / "model"
    task = Seq2SeqTask(Seq2Seq(config).eval(), source, target, SearchConfig())
    save_model(folder, task, "")
    load_model(folder)
    (folder / "target_tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"target_tokenizer\.json: is missing"):
        load_model(folder, accept_changes=True)


def test_a_model_with_another_programs_tokenizer_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="only models trained here are written as model folders"):
        save_model(tmp_path / "new", pellucid.load(HUGGINGFACE / "gpt2"), "")
    assert not list(tmp_path.iterdir())


def changed(folder: Path, how: str) -> None:
    """Damage a model folder in a way that every other check lets pass."""
    weights, file = load_file(folder / "model.safetensors"), folder / "config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    first, second = "encoder.layers.0.norm1.weight", "encoder.layers.0.norm2.bias"
    if how == "exchanged":
        weights |= {first: weights[second], second: weights[first]}
    elif how == "zeros":
        weights |= {"output.weight": np.zeros_like(weights["output.weight"])}
    elif how == "bit":
        weights[first].view(np.uint32)[0] ^= 1 << 20
    elif how == "tokenizer":
        tokenizer = folder / "tokenizer.json"
        tokenizer.write_text(tokenizer.read_text("utf-8").replace('"hello', '"hallo') + "\n")
        return
    elif how == "search":
        search = folder / "generation_config.json"
        search.write_text(json.dumps(json.loads(search.read_text("utf-8")) | {"beam": 2}))
        return
    else:
        settings |= {"post": {"norm": "pre"}, "scale": {"attention_scale": 0.0}}[how]
    save_file(weights, folder / "model.safetensors")
    file.write_text(json.dumps(settings), encoding="utf-8")


@pytest.mark.parametrize(
    "how", ["exchanged", "zeros", "bit", "tokenizer", "post", "scale", "search"]
)
def test_a_model_changed_after_it_was_saved_is_refused_unless_accepted(
    folder: Path, how: str
) -> None:
    changed(folder, how)
    with pytest.raises(UserError, match=r"was changed after the model was saved .*`accept_chang"):
        pellucid.load(folder)
    assert pellucid.load(folder, accept_changes=True).generate(["he"])
    (folder / "SHA256SUMS").unlink()  # as in a folder of an earlier version
    assert pellucid.load(folder).generate(["he"])


def test_an_accepted_model_is_written_with_its_own_digests(folder: Path, tmp_path: Path) -> None:
    changed(folder, "exchanged")
    save_model(tmp_path / "new", load_model(folder, accept_changes=True), "")
    load_model(tmp_path / "new")


@pytest.mark.parametrize("content", [b"\xff", b"no digests"])
def test_damaged_digests_are_named(folder: Path, content: bytes) -> None:
    (folder / "SHA256SUMS").write_bytes(content)
    with pytest.raises(UserError, match="SHA256SUMS: is damaged"):
        load_model(folder)


@pytest.mark.parametrize("target", ["nothing", "SHA256SUMS"])
def test_digests_that_are_a_dangling_link_are_named(folder: Path, target: str) -> None:
    (folder / "SHA256SUMS").unlink()
    (folder / "SHA256SUMS").symlink_to(target)
    with pytest.raises(UserError, match="SHA256SUMS: cannot be read"):
        load_model(folder)


@pytest.mark.parametrize(
    ("value", "message"), [(1e38, "whose squares are not finite"), (0.0, "every matrix is zero")]
)
def test_weights_that_nothing_learns_are_refused_without_digests_too(
    folder: Path, value: float, message: str
) -> None:
    (folder / "SHA256SUMS").unlink()
    weights = load_file(folder / "model.safetensors")
    same = {name: np.full_like(array, value) for name, array in weights.items()}
    save_file(same, folder / "model.safetensors")
    with pytest.raises(UserError, match=message):
        load_model(folder)


OPEN_EACH = """
import sys
import pellucid
from pellucid.core.errors import UserError
for folder in sys.argv[1:]:
    try:
        pellucid.load(folder)
    except UserError as error:
        print(error)
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system")
@pytest.mark.parametrize("endless", [True, False])
def test_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path, endless: bool) -> None:
    """In another process, which can be ended where one is read all the same."""
    expected = {"config.json": "{}: neither a model (no config.json)"}
    for name in ("model.safetensors", "tokenizer.json", "generation_config.json"):
        expected[name] = f"{{}}/{name}: is a pipe or a device; expected a file"
    folders = [write_model(tmp_path / name / "model") for name in expected]
    for name, folder in zip(expected, folders, strict=True):
        (folder / name).unlink()
        if endless:
            (folder / name).symlink_to("/dev/zero")
        else:
            os.mkfifo(folder / name)
    command = [sys.executable, "-c", OPEN_EACH, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    refusals = done.stdout.splitlines()
    for folder, message, refusal in zip(folders, expected.values(), refusals, strict=True):
        assert refusal.startswith(message.format(folder))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_a_settings_file_too_large_is_named(folder: Path, name: str) -> None:
    with (folder / name).open("r+b") as file:
        file.truncate(2**40)  # sparse: it takes no room
    with pytest.raises(UserError, match=rf"{name}: has 1099511627776 bytes; expected at most"):
        load_model(folder)


def test_a_scale_whose_square_is_not_finite_is_named(folder: Path) -> None:
    file = folder / "config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(settings | {"attention_scale": 1e300}), encoding="utf-8")
    with pytest.raises(UserError, match=r"attention_scale must be at most 9.2e\+18"):
        load_model(folder)


def test_a_model_stored_in_int8_generates_in_int8(folder: Path, tmp_path: Path) -> None:
    whole = load_model(folder)
    save_model(tmp_path / "small", whole, "", "int8")
    small = load_model(tmp_path / "small")
    for trained, arrays in ((whole, (True, False)), (small, (False, True))):
        target: Any = trained.decoder().packed.target  # type: ignore[attr-defined]
        assert (len(target.tokens) > 0, len(target.rounded) > 0) == arrays
    save_model(tmp_path / "widened", small, "", "float32")
    assert load_model(tmp_path / "widened").arithmetic == "float32"  # type: ignore[attr-defined]
