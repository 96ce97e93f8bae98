"""What torch refuses is refused here, and the text says what was expected and what came."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from pellucid import nn
from pellucid.core.rng import Rng
from pellucid.nn import functional

E, H, L, S, N = 6, 2, 5, 7, 3
Call = Callable[[Any, Any], Any]
"""Called as call(library, ones): the same expression for pellucid.nn and torch.nn."""


class Misuse(NamedTuple):
    what: str
    call: Call
    error: type[Exception]
    says: tuple[str, ...]


def attend(mask: tuple[int, ...] | None = None, kind: str = "bool", **call: Any) -> Call:
    def run(lib: Any, ones: Any) -> Any:
        x = ones(N, L, E)
        given = {} if mask is None else {"attn_mask": ones(*mask, kind=kind)}
        given |= {name: ones(*shape, kind=kind) for name, shape in call.items()}
        return lib.MultiheadAttention(E, H, batch_first=True)(x, x, x, **given)

    return run


def of_shapes(*shapes: tuple[int, ...], **build: Any) -> Call:
    return lambda lib, ones: lib.MultiheadAttention(E, H, **build)(*(ones(*s) for s in shapes))


def loss(target: Any, classes: int = 5, **build: Any) -> Call:
    def run(lib: Any, ones: Any) -> Any:
        given = {k: ones(*v) if k == "weight" else v for k, v in build.items()}
        wanted = ones(*target, kind="int64") if isinstance(target, tuple) else target(ones)
        return lib.CrossEntropyLoss(**given)(ones(N, classes), wanted)

    return run


def whole(src: tuple[int, ...], tgt: tuple[int, ...]) -> Call:
    return lambda lib, ones: lib.Transformer(E, H, 1, 1, 11, batch_first=True)(
        ones(*src), ones(*tgt)
    )


TABLE = [
    Misuse(
        "heads not dividing the width",
        lambda lib, ones: lib.MultiheadAttention(7, 2),
        ValueError,
        ("num_heads must divide embed_dim", "7", "2"),
    ),
    Misuse(
        "no heads",
        lambda lib, ones: lib.MultiheadAttention(6, 0),
        ValueError,
        ("positive", "6 and 0"),
    ),
    Misuse(
        "attn_mask of integers",
        attend((L, L), "int64"),
        TypeError,
        ("attn_mask must be bool (True = not allowed) or float", "int64", ".astype(bool)"),
    ),
    Misuse(
        "key_padding_mask of integers",
        attend(key_padding_mask=(N, L), kind="int64"),
        TypeError,
        ("key_padding_mask must be bool", "int64"),
    ),
    Misuse(
        "attn_mask of another length",
        attend((L, S)),
        ValueError,
        ("attn_mask must have shape (L, S) = (5, 5) or (N·H, L, S) = (6, 5, 5)", "got (5, 7)"),
    ),
    Misuse("attn_mask for one head", attend((N, L, L)), ValueError, ("got (3, 5, 5)",)),
    Misuse("attn_mask of one axis", attend((L,)), ValueError, ("got (5,)",)),
    Misuse("attn_mask of four axes", attend((N, H, L, L)), ValueError, ("got (3, 2, 5, 5)",)),
    Misuse(
        "key_padding_mask turned round",
        attend(key_padding_mask=(L, N)),
        ValueError,
        ("key_padding_mask must have shape (N, S) = (3, 5)", "got (5, 3)"),
    ),
    Misuse(
        "key_padding_mask that would broadcast",
        attend(key_padding_mask=(1, L)),
        ValueError,
        ("(N, S) = (3, 5)", "got (1, 5)"),
    ),
    Misuse(
        "a batch in the mask alone",
        lambda lib, ones: lib.MultiheadAttention(E, H)(
            ones(L, E), ones(L, E), ones(L, E), key_padding_mask=ones(1, L, kind="bool")
        ),
        ValueError,
        ("key_padding_mask must have shape (S,) = (5,)", "got (1, 5)"),
    ),
    Misuse(
        "a batch in the key alone",
        of_shapes((L, E), (S, N, E), (S, N, E)),
        ValueError,
        ("all have 3 axes, or all 2", "(5, 6), (7, 3, 6)"),
    ),
    Misuse("four axes", of_shapes((1, L, N, E), (S, N, E), (S, N, E)), ValueError, ("3 axes",)),
    Misuse(
        "another batch",
        of_shapes((L, N, E), (S, 2, E), (S, 2, E)),
        ValueError,
        ("same batch (batch_first=False)", "(5, 3, 6), (7, 2, 6)"),
    ),
    Misuse(
        "key and value of other lengths",
        of_shapes((L, N, E), (S, N, E), (L, N, E)),
        ValueError,
        ("key and value the same length", "(7, 3, 6) and (5, 3, 6)"),
    ),
    Misuse(
        "a query of another width",
        of_shapes((L, N, 5), (S, N, E), (S, N, E)),
        ValueError,
        ("query must be 6 wide", "(5, 3, 5)"),
    ),
    Misuse(
        "a key that is not kdim wide",
        of_shapes((L, N, E), (S, N, E), (S, N, E), kdim=7),
        ValueError,
        ("key must be 7 wide", "(7, 3, 6)"),
    ),
    Misuse(
        "a query of integers",
        lambda lib, ones: lib.MultiheadAttention(E, H)(
            ones(L, N, E, kind="int64"), ones(L, N, E), ones(L, N, E)
        ),
        TypeError,
        ("query must be float32 or float64", "int64", ".astype(np.float32)"),
    ),
    Misuse(
        "logits of integers",
        lambda lib, ones: lib.CrossEntropyLoss()(ones(N, 5, kind="int64"), ones(N, kind="int64")),
        TypeError,
        ("float32 or float64", "int64"),
    ),
    Misuse(
        "src and tgt of other batches",
        whole((N, S, E), (2, L, E)),
        ValueError,
        ("same batch", "(3, 7, 6) and (2, 5, 6)"),
    ),
    Misuse(
        "src of another width",
        whole((N, S, 5), (N, L, E)),
        ValueError,
        ("d_model = 6", "(3, 7, 5)"),
    ),
    Misuse("a batch in src alone", whole((N, S, E), (L, E)), ValueError, ("both have 3 axes",)),
    Misuse(
        "memory of another batch",
        lambda lib, ones: lib.TransformerDecoderLayer(E, H, 11, 0.0)(ones(L, N, E), ones(S, 2, E)),
        ValueError,
        ("same batch",),
    ),
    Misuse(
        "an activation that has no name",
        lambda lib, ones: lib.TransformerEncoderLayer(E, H, activation="swoosh"),
        ValueError,
        ("one of geglu", "pellucid.pair", "'swoosh'"),
    ),
    Misuse("dropout over 1", lambda lib, ones: lib.Dropout(1.5), ValueError, ("0 and 1", "1.5")),
    Misuse(
        "dropout over 1 in a layer",
        lambda lib, ones: lib.TransformerDecoderLayer(E, H, dropout=-0.1),
        ValueError,
        ("0 and 1", "-0.1"),
    ),
    Misuse(
        "a form of GELU that does not exist",
        lambda lib, ones: lib.GELU("fast")(ones(3)),
        ValueError,
        ('"none" or "tanh"', "'fast'"),
    ),
    Misuse(
        "features that do not fit",
        lambda lib, ones: lib.Linear(5, 3)(ones(N, E)),
        ValueError,
        ("width 5", "(3, 6)"),
    ),
    Misuse(
        "a norm of another width",
        lambda lib, ones: lib.LayerNorm(5)(ones(N, E)),
        ValueError,
        ("(5,)", "(3, 6)"),
    ),
    Misuse(
        "a norm over more axes than there are",
        lambda lib, ones: lib.LayerNorm((N, E))(ones(E)),
        ValueError,
        ("(3, 6)", "(6,)"),
    ),
    Misuse("a norm over nothing", lambda lib, ones: lib.LayerNorm(())(ones(E)), ValueError, ()),
    Misuse(
        "a token outside the table",
        lambda lib, ones: lib.Embedding(5, 3)(7 * ones(2, kind="int64")),
        IndexError,
        ("5 rows", "7"),
    ),
    Misuse(
        "tokens that are floats",
        lambda lib, ones: lib.Embedding(5, 3)(ones(2)),
        TypeError,
        ("integers", "float32"),
    ),
    Misuse(
        "padding outside the table",
        lambda lib, ones: lib.Embedding(5, 3, padding_idx=5),
        ValueError,
        ("within the 5 rows", "got 5"),
    ),
    Misuse(
        "a table of another size",
        lambda lib, ones: lib.Embedding(5, 3, _weight=ones(5, 2)),
        nn.StateError,
        ("expected shape (5, 3)", "(5, 2)"),
    ),
    Misuse(
        "a class that does not exist",
        loss(lambda ones: 5 * ones(N, kind="int64")),
        IndexError,
        ("[0, 5)", "5"),
    ),
    Misuse("targets of another batch", loss((2,)), ValueError, ("(3, 5)", "(2,)")),
    Misuse("smoothing over 1", loss((N,), label_smoothing=1.5), ValueError, ("0 and 1", "1.5")),
    Misuse("an unknown reduction", loss((N,), reduction="avg"), ValueError, ('"mean"', "'avg'")),
    Misuse("too few class weights", loss((N,), weight=(4,)), ValueError, ("each of the 5", "(4,)")),
    Misuse(
        "probabilities and a class to ignore",
        loss(lambda ones: ones(N, 5), ignore_index=2),
        ValueError,
        ("ignore_index 2", "probabilities"),
    ),
]


def sdpa(*shapes: tuple[int, ...], mask: tuple[int, ...] | None = None, **call: Any) -> Call:
    def run(f: Any, ones: Any) -> Any:
        kind = call.get("kind", "bool")
        given = {k: v for k, v in call.items() if k != "kind"}
        given |= {} if mask is None else {"attn_mask": ones(*mask, kind=kind)}
        return f.scaled_dot_product_attention(*(ones(*s) for s in shapes), **given)

    return run


FITTING = ((N, H, L, 3), (N, H, S, 3), (N, H, S, 4))
FUNCTIONS = [
    Misuse("one axis", sdpa((3,), (3,), (3,)), ValueError, ("at least 2 axes", "(3,)")),
    Misuse(
        "heads that do not divide",
        sdpa((N, 5, L, 3), *FITTING[1:], enable_gqa=True),
        ValueError,
        ("heads that divide", "(3, 5, 5, 3)"),
    ),
    Misuse(
        "no axis of heads",
        sdpa((L, 3), (S, 3), (S, 3), enable_gqa=True),
        ValueError,
        ("(…, heads, length, width)",),
    ),
    Misuse(
        "batches that do not broadcast",
        sdpa((N, L, 3), (2, S, 3), (2, S, 3)),
        ValueError,
        ("equal or broadcast", "(3, 5, 3)", "(2, 7, 3)"),
    ),
    Misuse("another width", sdpa((L, 3), (S, 4), (S, 4)), ValueError, ("(5, 3)", "(7, 4)")),
    Misuse(
        "a mask of integers",
        sdpa(*FITTING, mask=(L, S), kind="int64"),
        TypeError,
        ("True = MAY attend", "int64"),
    ),
    Misuse("a mask of one axis", sdpa(*FITTING, mask=(S,)), ValueError, ("broadcast", "(7,)")),
    Misuse(
        "a mask that does not fit",
        sdpa(*FITTING, mask=(S, L)),
        ValueError,
        ("(3, 2, 5, 7)", "(7, 5)"),
    ),
    Misuse(
        "a value of integers",
        lambda f, ones: f.scaled_dot_product_attention(
            ones(L, 3), ones(S, 3), ones(S, 4, kind="int64"), scale=1
        ),
        TypeError,
        ("value must be float32 or float64", "int64"),
    ),
    *(
        Misuse(
            f"a norm's {name} of shape {shape}",
            lambda f, ones, name=name, shape=shape: f.layer_norm(
                ones(N, 2, 3), (2, 3), **{name: ones(*shape)}
            ),
            ValueError,
            (f"{name} of shape (2, 3), got {shape}",),
        )
        for name in ("weight", "bias")
        for shape in ((6,), (3, 2), (1,), (1, 2, 3))
    ),
    Misuse("dropout over 1", sdpa(*FITTING, dropout_p=1.5), ValueError, ("0 and 1", "1.5")),
    Misuse(
        "padding outside the table",
        lambda f, ones: f.embedding(ones(2, kind="int64"), ones(5, 3), padding_idx=-6),
        ValueError,
        ("within the 5 rows", "got -6"),
    ),
    Misuse(
        "a product of no axis",
        lambda f, ones: f.linear(ones(), ones(5, 3)),
        ValueError,
        ("width 3", "got shape ()"),
    ),
    Misuse(
        "a weight of three axes",
        lambda f, ones: f.linear(ones(7, 3), ones(2, 5, 3)),
        ValueError,
        ("a weight of shape (F, E), got (2, 5, 3)",),
    ),
    *(
        Misuse(
            f"{name} along axis {dim}",
            lambda f, ones, name=name, dim=dim: getattr(f, name)(ones(5, 3), dim=dim),
            ValueError,
            ("dim must be an axis of input", "(5, 3)", f"got {dim}"),
        )
        for name, dim in (("softmax", 2), ("log_softmax", -3))
    ),
    Misuse(
        "a norm over a number",
        lambda f, ones: f.layer_norm(ones(5, 3), 3),
        ValueError,
        ("sizes of the last axes, such as (3,); got 3",),
    ),
]


def our_ones(*shape: int, kind: str = "float32") -> np.ndarray:
    return np.ones(shape, kind)


@pytest.mark.parametrize("misuse", TABLE, ids=[m.what for m in TABLE])
def test_misuse(misuse: Misuse) -> None:
    with pytest.raises(misuse.error) as caught:
        misuse.call(nn, our_ones)
    for words in misuse.says:
        assert words in str(caught.value)


@pytest.mark.parametrize("misuse", FUNCTIONS, ids=[m.what for m in FUNCTIONS])
def test_misuse_of_functions(misuse: Misuse) -> None:
    with pytest.raises(misuse.error) as caught:
        misuse.call(functional, our_ones)
    for words in misuse.says:
        assert words in str(caught.value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("misuse", [*TABLE, *FUNCTIONS], ids=[m.what for m in (*TABLE, *FUNCTIONS)])
@pytest.mark.oracle("torch")
def test_torch_refuses_it_too(misuse: Misuse) -> None:
    import torch

    def ones(*shape: int, kind: str = "float32") -> Any:
        return torch.ones(shape, dtype=getattr(torch, kind))

    with pytest.raises(Exception):  # noqa: B017, PT011 - torch's kinds of error vary
        misuse.call(torch.nn.functional if misuse in FUNCTIONS else torch.nn, ones)


def test_a_product_with_one_row_is_refused_which_torch_allows() -> None:
    for kind in ("float32", "float64"):
        with pytest.raises(ValueError, match=r"a weight of shape \(F, E\), got \(3,\)"):
            functional.linear(our_ones(5, 3, kind=kind), our_ones(3, kind=kind))


def test_gradients_of_weights_that_were_not_handed_out() -> None:
    x = our_ones(N, L, E)
    (y, _), backward = nn.MultiheadAttention(E, H).forward(x, x, x, need_weights=False)
    with pytest.raises(ValueError, match="need_weights=False"):
        backward(y, np.ones((L, N, N)))


def test_a_gradients_shape_is_reported_in_the_callers_axes() -> None:
    x = our_ones(L, N, E)
    (y, _), backward = nn.MultiheadAttention(E, H).forward(x, x, x)
    says = re.escape(f"expected {(L, N, E)}, got {(N, L, E)}")
    with pytest.raises(ValueError, match=says):
        backward(y.swapaxes(0, 1))


def test_attention_dropout_needs_an_rng() -> None:
    x = our_ones(N, L, E)
    with pytest.raises(ValueError, match=r"rng=pellucid\.Rng\(seed\)"):
        nn.MultiheadAttention(E, H, 0.1)(x, x, x)
    with pytest.raises(ValueError, match=r"dropout_p of 0\.1"):
        functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("rows", [(7,), (2, 3), (1, N, L)])
def test_rows_named_for_another_batch(rows: tuple[int, ...], first: bool) -> None:
    x = our_ones(N, L, E) if first else our_ones(L, N, E)
    rng = Rng(0).at(np.zeros(rows, np.uint32))
    says = re.escape(f"names rows of shape {rows}, the array has rows of shape {x.shape[:2]}")
    with pytest.raises(ValueError, match=says):
        nn.MultiheadAttention(E, H, 0.1, batch_first=first)(x, x, x, rng=rng)
    with pytest.raises(ValueError, match=says):
        nn.TransformerEncoderLayer(E, H, 11, 0.1, batch_first=first)(x, rng=rng)


def test_rows_need_one_projection_and_cross_attention_a_memory() -> None:
    x, context = our_ones(L, E), nn.Context(cu_seqlens=np.array([0, 2, L]))
    with pytest.raises(ValueError, match="kdim = vdim = embed_dim; use forward"):
        nn.MultiheadAttention(E, H, kdim=7).run(x, context)
    with pytest.raises(ValueError, match=r"needs context\.memory"):
        nn.MultiheadAttention(E, H).run_cross(x, context)


def layers() -> dict[str, Callable[[Any], Any]]:
    """Return calls with one argument, which is to be an array."""
    fixed = np.eye(4, dtype=np.float32)
    attention, encoder = nn.MultiheadAttention(4, 2), nn.TransformerEncoderLayer(4, 2).eval()
    decoder = nn.TransformerDecoderLayer(4, 2).eval()
    return {
        "Linear": nn.Linear(4, 3), "LayerNorm": nn.LayerNorm(4), "GELU": nn.GELU(),
        "Dropout": nn.Dropout(0.5).eval(), "SiLU": nn.SiLU(), "softmax": lambda x:
        functional.softmax(x, 0), "MultiheadAttention": lambda x: attention(fixed, x, x),
        "TransformerEncoderLayer": encoder, "decoder's memory": lambda x: decoder(fixed, x),
        "sdpa": lambda x: functional.scaled_dot_product_attention(fixed, fixed, x),
        "cross_entropy": lambda x: functional.cross_entropy(x, np.array([0])),
        "layer_norm's weight": lambda x: functional.layer_norm(fixed, (4,), x),
        "Transformer": lambda x: nn.Transformer(4, 2, 1, 1).eval()(x, fixed),
        "backward": lambda x: nn.Linear(4, 4).forward(fixed[:1])[1](x),
    }  # fmt: skip


@pytest.mark.parametrize("given", [[[1.0, 2.0, 3.0, 4.0]], 3.0, "abc"])
@pytest.mark.parametrize("name", layers())
def test_what_is_no_array_is_named(name: str, given: Any) -> None:
    kind = type(given).__name__
    if name == "backward" and kind != "list":  # its shape is looked at first
        return
    with pytest.raises(TypeError, match=rf"expected arrays of one library, got .*{kind}"):
        layers()[name](given)


@pytest.mark.oracle("torch")
@pytest.mark.parametrize("name", layers())
def test_arrays_of_two_libraries_are_named(name: str) -> None:
    import torch

    if name in ("GELU", "SiLU", "Dropout", "softmax"):  # of torch tensors they are right
        return
    with pytest.raises(TypeError, match=r"got numpy.ndarray and torch.Tensor; .* layer.to"):
        layers()[name](torch.eye(4)[:1])


def test_the_message_about_float16_is_a_sentence() -> None:
    with pytest.raises(TypeError, match="expected float32 or float64, got float16: float16 sums"):
        nn.Linear(3, 2)(np.zeros((2, 3), np.float16))
