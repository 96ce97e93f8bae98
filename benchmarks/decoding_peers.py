"""The engines of the decoding benchmark, with the same weights: ids in, ids out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp

import ctranslate2
import numpy as np
import torch
import transformers

from pellucid.compiled.engine import Engine
from pellucid.core.batch import Packed
from pellucid.data.tokenizers import Tokenizer
from pellucid.generation import SearchConfig
from pellucid.interop.ctranslate2 import Quantization, write_ctranslate2
from pellucid.models import Seq2Seq
from pellucid.models.quantize import Arithmetic

Rows = Sequence[Sequence[int]]
Decode = Callable[[Rows, int, int], list[list[int]]]
"""rows, batch, beam -> answers, in order."""

LONGEST = 80


def pellucid_engine(model: Seq2Seq, arithmetic: Arithmetic) -> Decode:
    """Return Pellucid's compiled engine."""
    engine = Engine(model, arithmetic)

    def decode(rows: Rows, batch: int, beam: int) -> list[list[int]]:
        config = SearchConfig(beam=beam, max_length=LONGEST, length_penalty=0.0)
        answers = engine.search(Packed.of(rows), config, batch_size=batch)
        return [list(best[0].tokens) for best in answers]

    return decode


def ctranslate2_engine(
    model: Seq2Seq, tokens: Tokenizer, quantization: Quantization, workers: int, threads: int
) -> Decode:
    """Return CTranslate2 with the same weights."""
    folder = Path(mkdtemp()) / "model"
    write_ctranslate2(model, tokens, tokens, folder, quantization)
    translator = ctranslate2.Translator(
        str(folder), compute_type=quantization, inter_threads=workers, intra_threads=threads
    )
    names = tokens.vocabulary
    ids = {name: i for i, name in enumerate(names)}

    def decode(rows: Rows, batch: int, beam: int) -> list[list[int]]:
        found = translator.translate_batch(
            [[names[i] for i in row] for row in rows], max_batch_size=batch, beam_size=beam,
            max_decoding_length=LONGEST, min_decoding_length=0, length_penalty=0.0,
        )  # fmt: skip
        return [[ids[name] for name in answer.hypotheses[0]] for answer in found]

    return decode


def transformers_engine(model: Seq2Seq) -> Decode:
    """Return Hugging Face's M2M100 (pre-norm, sinusoidal positions) with the same weights."""
    config = model.config
    theirs = transformers.M2M100ForConditionalGeneration(
        transformers.M2M100Config(
            vocab_size=config.target_vocab_size,
            d_model=config.d_model,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            encoder_attention_heads=config.num_attention_heads,
            decoder_attention_heads=config.num_attention_heads,
            encoder_ffn_dim=config.ffn_dim,
            decoder_ffn_dim=config.ffn_dim,
            activation_function=config.activation_function,
            max_position_embeddings=config.max_position_embeddings,
            scale_embedding=True,
            pad_token_id=config.pad_token_id,
            bos_token_id=config.bos_token_id,
            eos_token_id=config.eos_token_id,
            decoder_start_token_id=config.bos_token_id,
        )
    ).eval()
    theirs.lm_head = torch.nn.Linear(config.d_model, config.target_vocab_size)
    theirs.model.shared.weight.data = _tensor(model.target.tokens.weight.data)
    theirs.lm_head.weight = theirs.model.shared.weight
    assert model.output.bias is not None
    theirs.lm_head.bias.data = _tensor(model.output.bias.data)
    places = _tensor(model.target.places)
    for ours, stack in (
        (model.encoder, theirs.model.encoder),
        (model.decoder, theirs.model.decoder),
    ):
        stack.embed_tokens.weight = theirs.model.shared.weight
        first = stack.embed_positions.padding_idx + 1  # where they begin to count
        stack.embed_positions.weights = torch.cat([torch.zeros(first, places.shape[1]), places])
        _set(stack.layer_norm, ours.norm)
        for layer, to in zip(ours.layers, stack.layers, strict=True):
            _set_attention(to.self_attn, layer.self_attn)
            _set(to.self_attn_layer_norm, layer.norm1)
            if stack is theirs.model.decoder:
                _set_attention(to.encoder_attn, layer.multihead_attn)
                _set(to.encoder_attn_layer_norm, layer.norm2)
            last = layer.norm3 if stack is theirs.model.decoder else layer.norm2
            _set(to.final_layer_norm, last)
            _set(to.fc1, layer.linear1)
            _set(to.fc2, layer.linear2)

    def decode(rows: Rows, batch: int, beam: int) -> list[list[int]]:
        order = np.argsort([-len(row) for row in rows], kind="stable")
        found: list[list[int]] = [[] for _ in rows]
        for at in range(0, len(order), batch):
            some = [rows[i] for i in order[at : at + batch]]
            longest = max(map(len, some))
            ids = torch.full((len(some), longest), config.pad_token_id)
            for i, row in enumerate(some):
                ids[i, : len(row)] = torch.tensor(row)
            with torch.inference_mode():
                out = theirs.generate(
                    ids, attention_mask=(ids != config.pad_token_id).long(), num_beams=beam,
                    do_sample=False, max_new_tokens=LONGEST,
                    **({"length_penalty": 0.0} if beam > 1 else {}),
                )  # fmt: skip
            ends = (config.eos_token_id, config.pad_token_id)
            for place, said in zip(order[at : at + batch], out[:, 1:].tolist(), strict=True):
                found[place] = [token for token in said if token not in ends]
        return found

    return decode


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def _set(to: torch.nn.Module, ours: object) -> None:
    to.weight.data = _tensor(ours.weight.data)  # type: ignore[attr-defined]
    to.bias.data = _tensor(ours.bias.data)  # type: ignore[attr-defined]


def _set_attention(to: torch.nn.Module, ours: object) -> None:
    parts = (to.q_proj, to.k_proj, to.v_proj)
    for part, (weight, bias) in zip(parts, ours.projections(), strict=True):  # type: ignore[attr-defined]
        part.weight.data, part.bias.data = _tensor(weight), _tensor(bias)
    _set(to.out_proj, ours.out_proj)  # type: ignore[attr-defined]
