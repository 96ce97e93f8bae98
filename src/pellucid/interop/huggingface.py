"""Read and write Hugging Face checkpoints; the logits are those of `transformers`.

A folder holds config.json, model.safetensors (or several files with an index) and, to read texts,
tokenizer.json, older vocabulary files or SentencePiece models. Nothing is ever unpickled.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import save

from pellucid.core.errors import UsageError, UserError, raised_as
from pellucid.data.tokenizers import TokenizerLike
from pellucid.generation import Constraints, SearchConfig
from pellucid.interop.families import CLASSIFIERS, FAMILIES, Family, Foreign, Theirs
from pellucid.interop.tokenizer import ForeignTokenizer, MissingTokenizer, SentencePieceTokenizer
from pellucid.models import CausalLM, Classifier, MaskedLM, Seq2Seq
from pellucid.models.config import CausalLMConfig, Seq2SeqConfig, StackConfig
from pellucid.models.decoding import MOST_PENALTY
from pellucid.models.quantize import Arithmetic, QuantizeError, WeightFormat, dequantize, quantize
from pellucid.models.sizes import size_faults
from pellucid.nn import StateError
from pellucid.system.files import MOST_BYTES, read_file, write_folder_atomically
from pellucid.system.weights import check_weights, read_weights

Array = np.ndarray
Config = TypeVar("Config", bound=StackConfig)
Model = CausalLM | Classifier | MaskedLM | Seq2Seq

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
GENERATION, VOCABULARY, SPM = "generation_config.json", "vocab.json", ("source.spm", "target.spm")
INT8_WEIGHTS = "model.int8.safetensors"
"""A name of its own, so that `transformers` does not read int8 numbers as weights."""
INDEX, PICKLED = "model.safetensors.index.json", "pytorch_model.bin"
TOKENIZER_CONFIG, TARGET_TOKENIZER = "tokenizer_config.json", "target_tokenizer.json"
"""TARGET_TOKENIZER is written for Pellucid models with two vocabularies."""
TARGET_VOCABULARY = "target_vocab.json"
"""File of the target vocabulary of a Marian model."""
CHOICES = ("eos_token_id", "decoder_start_token_id", "bad_words_ids", "suppress_tokens")
"""Settings for which generation_config.json has priority over config.json, as in `transformers`."""
UNREAD = {
    "do_sample": False, "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "diversity_penalty": 0.0,
    "begin_suppress_tokens": [], "forced_decoder_ids": [], "exponential_decay_length_penalty": None,
    "sequence_bias": None, "guidance_scale": 1.0, "stop_strings": [], "renormalize_logits": False,
}  # fmt: skip
"""Generation settings that are ignored with a warning, and their values without an effect."""
TOKENIZER_FILES = (
    TOKENIZER, TARGET_TOKENIZER, TOKENIZER_CONFIG, VOCABULARY, TARGET_VOCABULARY, *SPM,
    "vocab.txt", "merges.txt",
)  # fmt: skip
BESIDE = {*TOKENIZER_FILES, GENERATION}
"""Files of a folder that are neither settings nor weights."""

_log = logging.getLogger(__name__)


def is_huggingface(config: Mapping[str, Any]) -> bool:
    """Return whether the settings in a config.json are Hugging Face's, and not Pellucid's."""
    model_type = config.get("model_type")
    return isinstance(model_type, str) and not model_type.startswith("pellucid")


def read_pretrained(path: Path | str, dtype: Any = np.float32) -> Model:
    """Read a model from a Hugging Face folder, or from its .safetensors file.

    The file must be next to its config.json. The model is in eval mode, with the outputs of
    `transformers`: a `CausalLM` for GPT-2, Llama, Mistral, Qwen 2 and 3 and Gemma; a `MaskedLM` for
    BERT, RoBERTa, DistilBERT and ELECTRA, without head if the file has none; a `Classifier` for
    BERT and RoBERTa with a layer of labels; a `Seq2Seq` for BART, Marian, Pegasus and T5. dtype:
    that of the parameters, also if the file has another. A warning names each array that is not
    used.

    Raises `UserError` naming a file that is missing, damaged, of another architecture, or
    inconsistent with the others, and for weights that `check_weights` refuses, such as NaN.
    """
    path = Path(path)
    folder = path.parent if path.suffix == ".safetensors" else path
    theirs, family = _settings(folder)
    tensors = theirs.arrays = _named_as_bare(_tensors(folder, path), family)
    tokenizer = _tokenizer(folder)
    with raised_as(UserError, UsageError, where=str(theirs.path)):  # the file is at fault
        config = _with_own_output(family.config(theirs), family, theirs, tensors)
        if family.model in (CausalLM, Seq2Seq):
            config = _with_choices(config, theirs)
    layers = sum(getattr(config, depth) for depth in config.depths.values())
    if layers > len(tensors):  # their names alone would fill the memory
        raise theirs.fault(
            f"has {layers} layers, its weights are {len(tensors)} arrays; copy both again"
        )
    if tokenizer is not None:
        _check_ids(folder / TOKENIZER, tokenizer, theirs.whole("vocab_size"))
    if tokenizer is not None and family.specials:
        config = _with_specials(config, family.specials, tokenizer, folder / TOKENIZER)
    if tokenizer is not None and isinstance(config, CausalLMConfig):
        begin = _begin(folder, tokenizer)
        config = config if begin is None else replace(config, bos_token_id=begin)
    names = family.sources(config, theirs)
    asked = dict.fromkeys(name for source in names.values() for name in source.names)
    if missing := [name for name in asked if name not in tensors]:
        begins = {name.partition(".")[0] for name in tensors}
        why = f"; every name in the file begins with {begins.pop()}." if len(begins) == 1 else ""
        raise UserError(f"{path}: these weights are missing: {', '.join(missing)}{why}")
    check_weights({name: tensors[name] for name in asked}, path)
    state = {ours: gathered(source, tensors) for ours, source in names.items()}
    if faults := size_faults(config, state):
        raise UserError(f"{path}: does not fit its {CONFIG}: {'; '.join(faults)}")
    for name in tensors:
        if name not in asked and not any(part in name for part in family.unused):
            _log.warning("%s: %s is not used by the model and was left out", path, name)
    model: Model = family.model(config, dtype=dtype)
    with raised_as(UserError, StateError, where=f"{path}: does not fit its {CONFIG}"):
        model.load_state_dict(state)
    return model.eval()


def _settings(folder: Path) -> tuple[Foreign, Family]:
    """Read a folder's config.json; return it and the family that its model_type names.

    The settings `CHOICES` of generation_config.json replace those of config.json. Raises
    `UserError` for an unknown model_type.
    """
    values = read_json(folder / CONFIG)
    if (folder / GENERATION).is_file():
        later = read_json(folder / GENERATION)
        values |= {x: later[x] for x in CHOICES if later.get(x) is not None}
    theirs = Foreign(values, folder / CONFIG)
    name = theirs.values.get("model_type")
    family = FAMILIES.get(str(name))
    if "ForSequenceClassification" in str(theirs.values.get("architectures")):
        family = CLASSIFIERS.get(str(name), family)
    if family is None:
        raise theirs.fault(
            f"model_type {name!r} is not supported; expected one of {', '.join(FAMILIES)}"
        )
    return theirs, family


def read_tokenizers(folder: Path, model: Model) -> list[TokenizerLike]:
    """Return the tokenizers of a folder: one, or those of source and target.

    A classifier has the tokenizers of texts and of labels. Without a file for texts, one tokenizer
    that refuses texts takes the place of theirs. Raises `UserError` naming a file that is damaged,
    or whose ids the model's vocabulary does not have.
    """
    found = _tokenizer(folder, _begins(folder))
    if isinstance(model, Classifier):
        labels = Foreign(read_json(folder / CONFIG), folder / CONFIG).label_tokenizer()
        return [MissingTokenizer(folder) if found is None else found.framed(), labels]
    if found is not None:
        target = found
        if not isinstance(model, Seq2Seq):
            return [found]
        if (folder / TARGET_TOKENIZER).is_file():
            target = ForeignTokenizer.load(folder / TARGET_TOKENIZER)
            _check_ids(folder / TARGET_TOKENIZER, target, model.config.target_vocab_size)
        return [found.framed(), target]
    if isinstance(model, Seq2Seq) and (folder / SPM[0]).is_file():
        c, apart = model.config, (folder / TARGET_VOCABULARY).is_file()
        both = folder / VOCABULARY, folder / (TARGET_VOCABULARY if apart else VOCABULARY)
        return [
            _pieces(folder / SPM[0], both[0], c.source_vocab_size, c.eos_token_id),
            _pieces(folder / SPM[1], both[1], c.target_vocab_size),
        ]
    return [MissingTokenizer(folder)]


def _tokenizer(folder: Path, begins: bool | None = None) -> ForeignTokenizer | None:
    """Return the tokenizer of tokenizer.json, or of the older vocabulary files.

    None if neither.
    """
    if (folder / TOKENIZER).is_file():
        return ForeignTokenizer.load(folder / TOKENIZER, begins)
    settings = folder / TOKENIZER_CONFIG
    return ForeignTokenizer.of_vocabulary(folder, read_json(settings) if settings.is_file() else {})


def _pieces(
    model: Path, vocabulary: Path, entries: int, end: int | None = None
) -> SentencePieceTokenizer:
    """Return the SentencePiece tokenizer of one side.

    entries: the size of the model's vocabulary; end: as of `SentencePieceTokenizer`.
    """
    ids = read_json(vocabulary)
    if not all(type(i) is int for i in ids.values()):
        raise UserError(f"{vocabulary}: is damaged (ids are not whole numbers)")
    made = SentencePieceTokenizer(model, ids, end)
    _check_ids(vocabulary, made, entries)
    return made


def _check_ids(path: Path, tokenizer: TokenizerLike, entries: int) -> None:
    """Raise `UserError` if a tokenizer has ids outside the model's vocabulary."""
    if tokenizer.vocab_size > entries:
        raise UserError(
            f"{path}: has ids up to {tokenizer.vocab_size - 1}, the model {entries} tokens; it "
            "belongs to another model"
        )


def _begins(folder: Path) -> bool | None:
    """Return whether texts get a begin token; None if tokenizer_config.json does not say it."""
    if not (folder / TOKENIZER_CONFIG).is_file():
        return None
    adds_bos = read_json(folder / TOKENIZER_CONFIG).get("add_bos_token")
    return adds_bos if isinstance(adds_bos, bool) else None


def _begin(folder: Path, tokenizer: ForeignTokenizer) -> int | None:
    """Return the id of the token that texts begin with, or None."""
    if tokenizer.begin is not None or not _begins(folder):
        return tokenizer.begin
    written = read_json(folder / TOKENIZER_CONFIG).get("bos_token")
    written = written.get("content") if isinstance(written, dict) else written
    return tokenizer.token_id(written) if isinstance(written, str) else None


def read_arithmetic(folder: Path) -> Arithmetic:
    """Return the number type for compiled decoding: int8 if weights are stored in it."""
    return "int8" if (folder / INT8_WEIGHTS).is_file() else "float32"


def read_search(folder: Path, alone: bool = False) -> SearchConfig:
    """Read a folder's search settings: beam, lengths, penalty, n-grams, first token.

    They are in generation_config.json or, in old folders, in config.json. A length penalty outside
    −10 to 10 is moved to the nearer end, with a warning; its formula is that of `SearchConfig`, not
    that of `transformers`. The lengths count the answer alone. Another warning lists the settings
    of `UNREAD` that have an effect, and bad words of several tokens, which are not followed here.
    Raises `UserError` for a value that is not allowed. alone: whether the model is a decoder alone;
    for one with `no_repeat_ngram_size`, a warning says that only n-grams of the answer are counted.
    """
    path = folder / GENERATION if (folder / GENERATION).is_file() else folder / CONFIG
    given = Foreign(read_json(path), path)
    others = [x for x, off in UNREAD.items() if given.values.get(x) not in (None, off)]
    others += ["min_length"] * (alone and given.whole("min_length", 0) > 0)
    others += ["bad_words_ids"] * any(len(word) > 1 for word in _bad_words(given))
    if others:
        _log.warning("%s: these settings are not followed here: %s", path, ", ".join(others))
    if alone and given.whole("no_repeat_ngram_size", 0):
        _log.warning("%s: no_repeat_ngram_size counts the answer here, not the prompt too", path)
    wanted = given.number("length_penalty", 1.0)
    alpha = min(max(wanted, -float(MOST_PENALTY)), float(MOST_PENALTY))
    if alpha != wanted:
        _log.warning("%s: length_penalty = %s is taken as %s", path, wanted, alpha)
    # There the begin token counts in min_length, and in a decoder alone the text before the answer.
    least = 0 if alone else max(given.whole("min_length", 0) - 1, 0)
    with raised_as(UserError, UsageError, where=str(path)):
        return SearchConfig(
            beam=given.whole("num_beams", 1),
            max_length=given.whole("max_new_tokens", given.whole("max_length", 128)),
            length_penalty=alpha,
            constraints=Constraints(
                no_repeat_ngram=given.whole("no_repeat_ngram_size", 0),
                forced_bos_token_id=given.maybe_whole("forced_bos_token_id"),
                min_length=given.whole("min_new_tokens", least),
            ),
        )


def _with_own_output(
    config: Config, family: Family, theirs: Foreign, tensors: Mapping[str, Array]
) -> Config:
    """Untie the output layer if the file has other values for it, as `transformers` does."""
    free: dict[str, Any] = {"tie_word_embeddings": False}
    if isinstance(config, Seq2SeqConfig):
        free = {"tie_embeddings": "input" if config.ties_source else "none"}
    apart = replace(config, **free)
    shared, own = (str(family.names(each, theirs)["output.weight"]) for each in (config, apart))
    if own == shared or own not in tensors:
        return config
    return config if np.array_equal(tensors[own], tensors.get(shared, ())) else apart


def _with_choices(config: Config, theirs: Foreign) -> Config:
    """Add further end tokens, and never-generated tokens such as Marian's padding."""
    ends = theirs.tokens("eos_token_id")
    config = replace(config, end_token_ids=ends[1:])
    never = [word[0] for word in _bad_words(theirs) if len(word) == 1 and type(word[0]) is int]
    never = [token for token in never if token not in (config.eos_token_id, *ends)]
    return replace(config, suppress_tokens=(*theirs.tokens("suppress_tokens"), *never))


def _bad_words(theirs: Foreign) -> list[list[Any]]:
    """Return the token sequences in `bad_words_ids`."""
    words = theirs.values.get("bad_words_ids")
    return [word for word in words if isinstance(word, list)] if isinstance(words, list) else []


def _with_specials(
    config: Config, specials: Sequence[tuple[str, ...]], tokenizer: ForeignTokenizer, path: Path
) -> Config:
    """Set the ids of begin, end and mask tokens by the tokenizer.

    specials: the texts of the three; those that the tokenizer has first count. Raises `UserError`
    if it has none of them whole.
    """
    for written in specials:
        ids: list[Any] = [tokenizer.token_id(token) for token in written]
        if None not in ids:
            names = ("bos_token_id", "eos_token_id", "mask_token_id")
            return replace(config, **dict(zip(names, ids, strict=True)))
    wanted = " or ".join(" ".join(written) for written in specials)
    raise UserError(f"{path}: has no tokens {wanted}; it belongs to another model")


def _tensors(folder: Path, path: Path) -> dict[str, Array]:
    """Read all arrays of a folder, or of `path` if it is a .safetensors file.

    Raises `UserError` if there are none, or only a pickle, and for a damaged file.
    """
    file = path if path.suffix == ".safetensors" else _single(folder)
    if file.is_file() or path.suffix == ".safetensors":
        return _whole(file)
    if (folder / INDEX).is_file():
        tensors: dict[str, Array] = {}
        for shard in _shards(folder):
            tensors |= _whole(folder / shard)
        return tensors
    if (folder / PICKLED).is_file():
        raise UserError(
            f"{folder}: has its weights as {PICKLED}, a pickle, which can run any code and is "
            f"never read here; save the model again as {WEIGHTS} (save_pretrained does)"
        )
    raise UserError(f"{folder}: has no {WEIGHTS}")


def _single(folder: Path) -> Path:
    """Return the path that a folder's weights have if they are in one file."""
    return folder / (INT8_WEIGHTS if read_arithmetic(folder) == "int8" else WEIGHTS)


def _whole(file: Path) -> dict[str, Array]:
    """Read the arrays of a file; int8 weights become float32."""
    stored = read_weights(file)
    with raised_as(UserError, QuantizeError, where=str(file)):
        return dequantize(stored) if file.name == INT8_WEIGHTS else stored


def _shards(folder: Path) -> list[str]:
    """Return the names of the files in a folder's index of weights."""
    shards = read_json(folder / INDEX).get("weight_map")
    if not isinstance(shards, dict):
        raise UserError(f"{folder / INDEX}: has no weight_map; copy it again")
    return sorted({Path(str(shard)).name for shard in shards.values()})


def pretrained_files(folder: Path) -> list[str]:
    """Return the names of the files that Pellucid reads in a folder.

    Without one file of weights, they include an index and the files that it names. Raises
    `UserError` if there is no index either, or if it is damaged.
    """
    single = _single(folder)
    weights = [single.name] if single.is_file() else [INDEX, *_shards(folder)]
    return [CONFIG, *weights, *sorted(name for name in BESIDE if (folder / name).is_file())]


WRAPPERS = re.compile(
    r"(?<![^.])(_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
"""Parts of parameter names that PyTorch's module wrappers add, for compilation or several devices.
No family has a module of these names."""


def _named_as_bare(tensors: Mapping[str, Array], family: Family) -> dict[str, Array]:
    """Normalise the names of arrays to those of a model without head and wrappers.

    Old files call the weight and the bias of a norm gamma and beta.
    """
    named = {}
    for name, array in tensors.items():
        bare = WRAPPERS.sub("", name).removeprefix(family.prefix)
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            if bare.endswith(old):
                bare = bare.removesuffix(old) + new
        named[bare] = array
    return named


def gathered(theirs: Theirs, tensors: Mapping[str, Array]) -> Array:
    """Make one array of a Pellucid model from arrays of a Hugging Face model."""
    parts = [tensors[name] for name in theirs.names]
    array = parts[0] if len(parts) == 1 else np.concatenate(parts)
    array = (array.T if theirs.transposed else array)[theirs.skip :]
    array = array[0] if theirs.first else array
    if theirs.more:
        array = np.concatenate([np.zeros((theirs.more, *array.shape[1:]), array.dtype), array])
    if (theirs.times, theirs.plus) == (1.0, 0.0):
        return array
    return array.astype(np.float64) * theirs.times + theirs.plus


def scattered(array: Array, theirs: Theirs, lengths: Sequence[int]) -> list[Array]:
    """Split an array of a Pellucid model into Hugging Face's: `gathered` reversed.

    Rows that `gathered` skips are left out. lengths: number of rows that each Hugging Face array
    gets.
    """
    array = (array[theirs.more :] - theirs.plus) / theirs.times
    rows = array[None] if theirs.first else array
    parts = np.split(rows, np.cumsum(lengths)[:-1])
    return [part.T if theirs.transposed else part for part in parts]


def read_json(path: Path) -> dict[str, Any]:
    """Read a file with a JSON object. Raises `UserError` naming it if that fails."""
    wrong = f"{path}: is damaged, copy it again"
    with raised_as(UserError, ValueError, RecursionError, where=wrong):
        values = json.loads(read_file(path, MOST_BYTES).decode("utf-8"))
    if not isinstance(values, dict):
        raise UserError(f"{path}: is damaged (not a JSON object); copy it again")
    return values


def write_pretrained(
    model: Model,
    like: Path | str,
    folder: Path,
    further: Mapping[str, bytes] | None = None,
    weights: WeightFormat = "float32",
) -> None:
    """Write a model in the format of the Hugging Face folder that it was read from.

    With float32 weights, `transformers` and `pellucid.load` read the new folder with the same
    logits; float16 and int8 round them, and int8 is in a file that only Pellucid reads. like: the
    folder that the model was read from. Its arrays that the model does not have are copied, and so
    are its settings (but for the dtype) and tokenizers. further: contents of further files, by
    name, or of files to write instead of those. An existing `folder` is replaced. Raises
    `UserError` if `like` holds another model or `folder` cannot be written, and `QuantizeError`
    for weights too large for float16.
    """
    like = Path(like)
    theirs, family = _settings(like)
    tensors = _tensors(like, like)
    before = theirs.arrays = {
        name: np.array(x, np.float32) for name, x in _named_as_bare(tensors, family).items()
    }
    after = dict(before)
    state = {name: np.asarray(x, np.float64) for name, x in model.state_dict().items()}
    sources = family.sources(model.config, theirs)
    if faults := [name for name in sources.keys() ^ state.keys() if name in state]:
        raise UserError(f"{like}: is of another model, without {', '.join(sorted(faults))}")
    for name, source in sources.items():
        old = [before[part] for part in source.names]
        lengths = [x.shape[1 if source.transposed else 0] - source.skip for x in old]
        new = scattered(state[name], source, lengths)
        for part, whole, piece in zip(source.names, old, new, strict=True):
            if piece.shape != whole[source.skip :].shape:
                raise UserError(f"{like}: is of another model: {part} is {whole.shape}")
            after[part] = np.concatenate([whole[: source.skip], piece]).astype(np.float32)
    own = {part for source in sources.values() for part in source.names}
    for name in before.keys() - own:  # a table that the file holds a second time, being tied
        for twin in own:
            if before[name].ndim == 2 and np.array_equal(before[name], before[twin]):
                after[name] = after[twin]
    vectors = {part for source in sources.values() if source.first for part in source.names}
    named = list(zip(tensors, after.items(), strict=True))  # by the names of the file
    kept = {name: x for name, (part, x) in named if part in vectors}
    smaller = quantize({name: x for name, (part, x) in named if part not in vectors}, weights)
    file = INT8_WEIGHTS if weights == "int8" else WEIGHTS
    contents = {file: save({**kept, **smaller}, {"format": "pt"})}
    values = {**read_json(like / CONFIG), "dtype": "float16" if weights == "float16" else "float32"}
    values.pop("torch_dtype", None)
    contents[CONFIG] = json.dumps(values, indent=2, ensure_ascii=False).encode()
    for path in like.iterdir():
        if path.name in BESIDE:
            contents[path.name] = read_file(path, MOST_BYTES)
    write_folder_atomically(folder, contents | dict(further or {}))
