"""The settings of models as dataclasses; everything that article 003 varies is a setting here."""

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar, Literal

from pellucid.core.array import LARGEST, LEAST_NORMAL
from pellucid.core.errors import UsageError
from pellucid.core.settings import Name, check_ranges
from pellucid.models.positions import POSITIONS
from pellucid.nn.config import AttentionConfig, Relative
from pellucid.ops import rules
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.norms import NORMS
from pellucid.ops.rotary import Angles
from pellucid.ops.rule import EVERYTHING
from pellucid.ops.rules.function import FUNCTIONS

# The allowed names are those of the registries.
if TYPE_CHECKING:
    Activation = str
    NormType = str
    PositionScheme = str
else:

    class Activation(Name):
        registry = ACTIVATIONS

    class NormType(Name):
        registry = NORMS

    class PositionScheme(Name):
        registry = POSITIONS


MOST_POSITIONS = 2**20
"""The maximum number of positions: a larger one is a damaged file, and needs too much memory."""
MOST_NUMBERS = 2**24
"""The maximum size of a fixed table of positions, which takes about 0.5 s to compute."""
CHOSEN = ("eos_token_id", "end_token_ids", "suppress_tokens")
"""The settings that list tokens of the generated vocabulary."""
RANGES = {
    name: interval
    for interval, names in {
        "[4, inf]": "relative_attention_num_buckets",
        "[2, inf]": "max_position_embeddings",
        "[1, inf]": "d_model num_attention_heads num_key_value_heads head_dim ffn_dim ffn_after "
        "sliding_window",
        "[0, inf]": "ffn_before encoder_layers decoder_layers num_hidden_layers "
        "pad_token_id bos_token_id eos_token_id mask_token_id "
        "vocab_size source_vocab_size target_vocab_size label_vocab_size type_vocab_size",
        f"[{LEAST_NORMAL}, inf]": "layer_norm_eps",  # a normal number in float32
        "(0, inf]": "attention_softcap rope_factor",
        "(1, inf]": "rope_theta",
        "(0, 1]": "masked_share",
        "[0, 1)": "dropout embedding_dropout attention_dropout activation_dropout",
    }.items()
    for name in names.split()
}
"""The allowed range of each numeric setting; a model need not have all of them."""


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """The settings that every model has, named as in Hugging Face's configs where those have them.

    Raises `UsageError` naming the setting whose value is not allowed.
    """

    depths: ClassVar[dict[str, str]] = {}
    """For each stack, by name, the setting that is its number of layers."""

    d_model: int = 256
    """Width E of every row between the layers."""
    num_attention_heads: int = 8
    """Heads H of every attention; they divide d_model unless head_dim is set."""
    num_key_value_heads: int | None = None
    """Heads of keys and values, each shared by several query heads; 1 is multi-query attention.
    None: as many as query heads."""
    head_dim: int | None = None
    """Width D of a head. None: d_model / num_attention_heads."""
    qk_norm: bool = False
    """An RMSNorm over every query and key, head by head, in self- and cross-attention."""
    attention_softcap: float | None = None
    """Keep the scores within (−c, c): c tanh(score / c)."""
    sliding_window: int | None = None
    """In self-attention a token sees only tokens fewer than this number of positions away."""
    attention_sinks: bool = False
    """Every head learns a score that no key has, so that a query may look at nothing (gpt-oss)."""
    attention_function: str | None = None
    """In self-attention every score is changed by a function of yours: its name in
    `ops.rules.function.FUNCTIONS`, of a file that `--import` names."""
    linear_bias: bool = True
    """Biases in attention and in the feed-forward networks."""
    qkv_bias: bool | None = None
    """Biases in the projections to queries, keys and values. None: as linear_bias."""
    ffn_dim: int = 512
    """Width F inside the feed-forward networks."""
    activation_function: Activation = "relu"
    """Activation inside the feed-forward networks."""
    dropout: float = 0.1
    """Dropout of every sublayer's output, and wherever the three below are left out."""
    embedding_dropout: float | None = None
    """Dropout of the embeddings, token and position together."""
    attention_dropout: float | None = None
    """Dropout of the attention weights."""
    activation_dropout: float | None = None
    """Dropout inside the feed-forward networks."""
    norm: Literal["post", "pre"] = "post"
    """The norm after each residual sum (the paper) or before each sublayer."""
    norm_type: NormType = "layer_norm"
    """Which norm: its name in `ops.norms`; *Modern parts* on the site says what each computes."""
    final_norm: bool = True
    """A norm at the end of each stack: torch's Transformer has them, article 003 does not."""
    embedding_norm: bool = False
    """A norm over the embeddings."""
    layer_norm_eps: float = 1e-5
    """The epsilon of every norm."""
    ffn_before: int = 0
    """Feed-forward networks before attention in every layer (the exercise of article 004)."""
    ffn_after: int = 1
    """Feed-forward networks after attention in every layer."""
    positions: PositionScheme = "sinusoidal"
    """How a token's position is known: the paper's fixed table, a learned table, queries and keys
    rotated by their positions (rotary_cross: in cross-attention too), scores that fall with the
    distance (ALiBi), or learned scores of distances, which the layers of a stack share (T5)."""
    relative_attention_num_buckets: int = 32
    """Ranges of distances that have a learned score each."""
    relative_attention_max_distance: int = 128
    """Distances beyond share one."""
    rope_theta: float = 10000.0
    """The base of the angles of rotary positions."""
    rope_factor: float = 1.0
    """Rotary positions turn slower by this factor, for longer texts than in training."""
    rope_low_freq_factor: float | None = None
    """With the next two, only slow pairs turn slower (Llama 3): below so many turns by rope_factor,
    ..."""
    rope_high_freq_factor: float | None = None
    """... above so many turns not at all, ..."""
    rope_original_positions: int | None = None
    """... within so many positions, those of the model before."""
    max_position_embeddings: int = 256
    """Longest sequence, begin and end tokens included."""
    attention_scale: Literal["sqrt_d_k", "d_k", "d_k^2", "none", "learned"] | float = "sqrt_d_k"
    """Divisor of the scores; a number multiplies them; "learned": each head learns its
    own, from 1/sqrt_d_k."""
    embedding_scale: Literal["sqrt_d_model"] | float = "sqrt_d_model"
    """Factor of the token embeddings."""
    position_scale: Literal["1/sqrt_d_model"] | float = 1.0
    """Factor of the positions."""
    output_bias: bool = True
    """A bias in the output layer."""
    token_init: Literal["xavier", "1/sqrt_d_model"] | float = "1/sqrt_d_model"
    """Initialisation of token tables: Xavier's uniform, or normal with this standard deviation."""
    position_init: Literal["xavier", "1/sqrt_d_model"] | float = "1/sqrt_d_model"
    """Initialisation of learned positions, likewise."""
    attention_init: Literal["packed", "separate"] = "packed"
    """Xavier over the packed q, k, v weights, biases zero (torch), or over each (article 003)."""
    padding_row_zero: bool = False
    """Keep the padding token's row at zero and never learn it."""
    pad_token_id: int = 0
    """Token that fills a padded view; it is never computed on."""
    bos_token_id: int = 1
    """Token that begins a target."""
    eos_token_id: int = 2
    """Token that ends a target."""
    end_token_ids: tuple[int, ...] = ()
    """More tokens that end an answer: the likeliest of all of them counts as eos_token_id."""
    suppress_tokens: tuple[int, ...] = ()
    """Tokens that are never generated."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{setting.name} must be finite, got {value}")
            if isinstance(value, float) and abs(value) > LARGEST:
                raise UsageError(
                    f"{setting.name} must be at most {LARGEST:.2g}, whose square float32 still "
                    f"holds; got {value}"
                )
        check_ranges(self, **{name: RANGES[name] for name in RANGES if hasattr(self, name)})
        if self.head_dim is None and self.d_model % self.num_attention_heads:
            raise UsageError(
                f"num_attention_heads must divide d_model: {self.d_model} is not a multiple of "
                f"{self.num_attention_heads}"
            )
        if POSITIONS[self.positions].rotate is not None and self.head_width % 2:
            raise UsageError(
                f"{self.positions} positions rotate pairs of numbers, so a head must be an even "
                f"number wide; d_model / num_attention_heads is {self.head_width}"
            )
        if self.num_key_value_heads and self.num_attention_heads % self.num_key_value_heads:
            raise UsageError(
                f"num_key_value_heads must divide num_attention_heads: {self.num_attention_heads} "
                f"is not a multiple of {self.num_key_value_heads}"
            )
        if self.attention_function is not None:
            FUNCTIONS.find(self.attention_function, "attention_function")
        if self.relative_attention_max_distance <= self.relative_attention_num_buckets // 2:
            raise UsageError(
                "relative_attention_max_distance must be above half of "
                f"relative_attention_num_buckets; got {self.relative_attention_max_distance} and "
                f"{self.relative_attention_num_buckets}"
            )
        low, high, original = self.angles[2:]
        if (low, high, original) != (None, None, None) and not (
            low is not None and high is not None and original is not None and 0 < low < high
        ):
            raise UsageError(
                "rope_low_freq_factor, rope_high_freq_factor and rope_original_positions go "
                f"together, the first below the second; got {low}, {high} and {original}"
            )
        shares = self.num_key_value_heads not in (None, self.num_attention_heads)
        biased = self.linear_bias and self.qkv_bias is None
        if self.attention_init == "separate" and (shares or self.head_dim or not biased):
            raise UsageError(
                'attention_init = "separate" is article 003\'s, whose attention has biases and as '
                'many heads of keys as of queries; use "packed"'
            )
        table = POSITIONS[self.positions].table is not None
        most = min(MOST_POSITIONS, MOST_NUMBERS // self.d_model if table else MOST_POSITIONS)
        if self.max_position_embeddings > most:
            raise UsageError(
                f"max_position_embeddings must be at most {most}, got "
                f"{self.max_position_embeddings}"
            )

    def _tokens_of(self, vocabulary: str, *names: str) -> None:
        """Raise `UsageError` for a setting (of `names`) with a token outside the vocabulary.

        A vocabulary of 0 entries is not known yet, so that any token passes.
        """
        entries = getattr(self, vocabulary)
        for name in names:
            value = getattr(self, name)
            tokens = value if isinstance(value, tuple | list) else (value,)
            if not all(0 <= token < (entries or math.inf) for token in tokens):
                raise UsageError(
                    f"{name} must be a token of the vocabulary, below {vocabulary} = {entries}, "
                    f"got {value}"
                )

    def dropout_of(self, what: Literal["embedding", "attention", "activation"]) -> float:
        """Return the setting `{what}_dropout`, or `dropout` if it is None."""
        own: float | None = getattr(self, f"{what}_dropout")
        return self.dropout if own is None else own

    @property
    def head_width(self) -> int:
        """The width D = d_k of one head."""
        return self.head_dim or self.d_model // self.num_attention_heads

    @property
    def angles(self) -> Angles:
        """The settings of the rotation frequencies of rotary positions."""
        return Angles(
            self.rope_theta,
            self.rope_factor,
            self.rope_low_freq_factor,
            self.rope_high_freq_factor,
            self.rope_original_positions,
        )

    @property
    def attention(self) -> AttentionConfig:
        """The settings of self-attention, as `Attention` takes them."""
        scheme, rule = POSITIONS[self.positions], EVERYTHING
        if self.attention_softcap is not None:
            rule = rules.soft_cap(self.attention_softcap)
        if self.sliding_window is not None:
            rule = rule & rules.window(self.sliding_window)
        longest = self.relative_attention_max_distance
        return AttentionConfig(
            embed_dim=self.d_model,
            num_heads=self.num_attention_heads,
            dropout=self.dropout_of("attention"),
            bias=self.linear_bias,
            scale="learned" if self.attention_scale == "learned" else self.score_factor,
            key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            qkv_bias=self.qkv_bias,
            qk_norm=self.layer_norm_eps if self.qk_norm else None,
            rule=rule & scheme.rule,
            relative=Relative(self.relative_attention_num_buckets, longest)
            if scheme.relative
            else None,
            sinks=self.attention_sinks,
            function=FUNCTIONS.get(self.attention_function or ""),
            rotate=scheme.rotate,
            rotate_cross=scheme.rotate_cross,
            angles=self.angles,
        )

    @property
    def score_factor(self) -> float:
        """The factor of q·k; 1 if it is learned, since it is then applied to the queries."""
        if isinstance(self.attention_scale, str):
            d_k = self.head_width
            powers = {"sqrt_d_k": 0.5, "d_k": 1.0, "d_k^2": 2.0, "none": 0.0, "learned": 0.0}
            return float(d_k ** -powers[self.attention_scale])
        return self.attention_scale

    @property
    def token_factor(self) -> float:
        """The factor of the token embeddings: `embedding_scale` as a number."""
        scale = self.embedding_scale
        return float(self.d_model**0.5) if isinstance(scale, str) else scale

    @property
    def position_factor(self) -> float:
        """The factor of the position embeddings: `position_scale` as a number."""
        scale = self.position_scale
        return float(self.d_model**-0.5) if isinstance(scale, str) else scale


@dataclass(frozen=True)
class Seq2SeqConfig(StackConfig):
    """The settings of a `Seq2Seq`.

    >>> Seq2SeqConfig(d_model=256, num_attention_heads=8).head_width
    32
    """

    depths: ClassVar[dict[str, str]] = {"encoder": "encoder_layers", "decoder": "decoder_layers"}
    model_type: Literal["pellucid-seq2seq"] = field(default="pellucid-seq2seq", init=False)
    """An encoder-decoder."""
    source_vocab_size: int = 0
    """Entries of the source vocabulary; 0 = as many as the tokenizer has."""
    target_vocab_size: int = 0
    """Entries of the target vocabulary; 0 = as many as the tokenizer has."""
    encoder_layers: int = 3
    """Layers of the encoder."""
    decoder_layers: int = 3
    """Layers of the decoder."""
    tie_embeddings: Literal["none", "input", "output", "all"] = "none"
    """One table for source and target tokens ("input"), for target tokens and output layer
    ("output"), or for all three ("all")."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tokens_of("source_vocab_size", "pad_token_id")
        self._tokens_of("target_vocab_size", "pad_token_id", "bos_token_id", *CHOSEN)
        if self.ties_source and self.source_vocab_size != self.target_vocab_size:
            raise UsageError(
                f'tie_embeddings = "{self.tie_embeddings}" needs one vocabulary for both sides; '
                f"got {self.source_vocab_size} and {self.target_vocab_size} entries"
            )

    @property
    def ties_source(self) -> bool:
        """Whether source and target tokens share one embedding table."""
        return self.tie_embeddings in ("input", "all")

    @property
    def ties_output(self) -> bool:
        """Whether the output layer shares the embedding table of the target tokens."""
        return self.tie_embeddings in ("output", "all")


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(StackConfig):
    """The settings of a model with one stack and one vocabulary.

    By default token and position tables are initialised as in Hugging Face's GPT-2 and BERT, normal
    with standard deviation 0.02; the matrices of the stack by Xavier's method.
    """

    vocab_size: int = 0
    """Entries of the vocabulary; 0 = as many as the tokenizer has."""
    num_hidden_layers: int = 3
    """Layers of the stack."""
    tie_word_embeddings: bool = True
    """One table for tokens and output layer."""
    activation_function: Activation = "gelu"
    """Activation inside the feed-forward networks."""
    positions: PositionScheme = "learned"
    """How a token's position is known: the paper's fixed table, a learned one, or another."""
    embedding_scale: Literal["sqrt_d_model"] | float = 1.0
    """Factor of the token embeddings."""
    token_init: Literal["xavier", "1/sqrt_d_model"] | float = 0.02
    """Initialisation of token tables: Xavier's uniform, or normal with this standard deviation."""
    position_init: Literal["xavier", "1/sqrt_d_model"] | float = 0.02
    """Initialisation of learned positions, likewise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tokens_of("vocab_size", "pad_token_id", "bos_token_id", *CHOSEN)


@dataclass(frozen=True, kw_only=True)
class CausalLMConfig(LanguageConfig):
    """The settings of a `CausalLM`. The defaults are a smaller GPT-2.

    It differs from GPT-2 by the exact GELU, and by Xavier's initialisation of the layers.

    >>> CausalLMConfig().norm
    'pre'
    """

    depths: ClassVar[dict[str, str]] = {"decoder": "num_hidden_layers"}
    model_type: Literal["pellucid-causal-lm"] = field(default="pellucid-causal-lm", init=False)
    """A decoder alone: it continues a text."""
    norm: Literal["post", "pre"] = "pre"
    """The norm after each residual sum (the paper) or before each sublayer."""
    output_bias: bool = False
    """A bias in the output layer."""


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(LanguageConfig):
    """The settings of a `Classifier`.

    Its output layer has labels, so `tie_word_embeddings` has no effect.

    >>> ClassifierConfig().labels
    'text'
    """

    depths: ClassVar[dict[str, str]] = {"encoder": "num_hidden_layers"}
    model_type: Literal["pellucid-classifier"] = field(default="pellucid-classifier", init=False)
    """An encoder alone: it gives texts, or their tokens, labels."""
    label_vocab_size: int = 0
    """Entries of the vocabulary of labels; 0 = as many as its tokenizer has."""
    labels: Literal["text", "token"] = "text"
    """A label for a text, or for each of its tokens."""
    pooling: Literal["mean", "pooler"] = "mean"
    """The row of a text that gets a label: the mean of its tokens', or BERT's layer over the
    first."""
    type_vocab_size: int = 0
    """Segments that a token may belong to (BERT: 2); 0: none."""
    norm: Literal["post", "pre"] = "pre"
    """The norm after each residual sum or before each sublayer."""


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(LanguageConfig):
    """The settings of a `MaskedLM`. The defaults are a smaller BERT.

    It differs from BERT by Xavier's initialisation of the layers, and has no segments and no pooler
    unless they are set.

    >>> MaskedLMConfig().norm
    'post'
    """

    depths: ClassVar[dict[str, str]] = {"encoder": "num_hidden_layers"}
    model_type: Literal["pellucid-masked-lm"] = field(default="pellucid-masked-lm", init=False)
    """An encoder alone: it fills what is masked."""
    final_norm: bool = False
    """A norm at the end of the stack; BERT has none."""
    embedding_norm: bool = True
    """A norm over the embeddings."""
    layer_norm_eps: float = 1e-12
    """The epsilon of every norm."""
    type_vocab_size: int = 0
    """Segments that a token may belong to (BERT: 2); 0: none."""
    head: bool = True
    """A layer that predicts tokens; a model for embeddings only has none."""
    pooler: bool = False
    """BERT's layer over the first row of each sequence; read from a file, not trained here."""
    mask_token_id: int = 0
    """Token that replaces a masked one; 0: the vocabulary's last."""
    masked_share: float = 0.15
    """Share of a sequence's tokens that are predicted, at least one of each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tokens_of("vocab_size", "mask_token_id")

    @property
    def mask_id(self) -> int:
        """The id of the mask token: `mask_token_id` or, if that is 0, the vocabulary's last."""
        return self.mask_token_id or self.vocab_size - 1
