"""Options of a command, parsed by tyro from its function's signature and docstring."""

import functools
import inspect
import io
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructTypeInfo,
    UnsupportedTypeAnnotationError,
)

from pellucid.apps.cli.language import tr, wrapped
from pellucid.apps.cli.refusals import refusal
from pellucid.core.errors import UsageError, UserError, raised_as
from pellucid.core.parts import read_all
from pellucid.core.settings import Name
from pellucid.generation import SampleConfig, SearchConfig
from pellucid.kernels.device import CPU, place
from pellucid.tasks import Seq2SeqTask
from pellucid.tasks.folder import load_model
from pellucid.tasks.generation import sampling_of

RULES = ConstructorRegistry()
"""Rules for types that tyro does not turn into suitable options."""

T = TypeVar("T")
Flat = Annotated[T, tyro.conf.arg(name="")]
"""Type of a command's parameter whose settings become options without a prefix."""
POSITIONAL, OPTIONS = "positional arguments", "options"
Entry = tuple[str, str, str]
"""An entry of the help: heading, how the option is typed, and its description."""
INDENT = 24
"""Column of an option's description."""
HELP_ALL = "--help-all"
MANY = 60
"""Number of options from which on --help only names those in groups, and --help-all describes
them."""


def parse(function: Callable[..., int], command: str, arguments: Sequence[str]) -> int:
    """Parse a command's arguments, call its function with them, and return its exit code.

    Positional-only parameters are positional, the others options; the docstring is the help. If
    help is asked for, prints it and returns 0. command: its name in the help, after `pellucid`.
    Raises `UsageError` for unknown, missing or wrong arguments, and for an option of several values
    that is given twice.
    """
    if asks_help(arguments):
        encoding = sys.stdout.encoding or "utf-8"  # what it lacks is printed as "?"
        shown = help_of(function, command, HELP_ALL in arguments)
        print(shown.encode(encoding, "replace").decode(encoding))
        return 0
    refuse_repeated(function, arguments)
    config = (tyro.conf.AvoidSubcommands, tyro.conf.PositionalMetavarFromFieldName)
    prog = f"pellucid {command}"

    @functools.wraps(function)
    def bound(*positional: Any, **options: Any) -> Callable[[], int]:
        return functools.partial(function, *positional, **options)

    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            call: Any = tyro.cli(bound, prog=prog, args=arguments, config=config, registry=RULES)
    except SystemExit:
        message = refusal(printed.getvalue(), prog, _typed(function))
        if message is None:
            sys.stderr.write(printed.getvalue())
            raise
        raise UsageError(message) from None
    return int(call())


def before_text(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments before a bare --, after which everything is text."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def asks_help(arguments: Sequence[str]) -> bool:
    """Return whether an option for help is among the arguments."""
    return bool({"-h", "--help", HELP_ALL} & set(before_text(arguments)))


def named(arguments: Sequence[str], use: str) -> tuple[str | None, list[str]]:
    """Split the first argument, a name, from the others.

    Without a name only help may be asked for; otherwise `UsageError` with the message `use`.

    >>> named(["runs/g2p", "--json"], ""), named(["--help"], "")
    (('runs/g2p', ['--json']), (None, ['--help']))
    """
    if arguments and arguments[0][:1] not in ("", "-"):
        return arguments[0], list(arguments[1:])
    if not asks_help(arguments):
        raise UsageError(use)
    return None, list(arguments)


def refuse_repeated(function: Callable[..., int], arguments: Sequence[str]) -> None:
    """Raise `UsageError` if an option that takes several values is given more than once.

    The argument parser would keep the last one, and silently drop the others. - and _ in a name are
    the same.
    """
    given = (word.partition("=")[0] for word in before_text(arguments))
    names = Counter(word.replace("_", "-") for word in given)
    if not any(times > 1 and name.startswith("--") for name, times in names.items()):
        return
    for typed in _typed(function):
        several = len(typed.split()) > 2  # as in --betas FLOAT FLOAT
        if several and (times := names[option := typed.split()[0]]) > 1:
            raise UsageError(
                f"{option} is given {times} times, and only the last would count; give all its "
                "values after one"
            )


def value_of(arguments: Sequence[str], option: str) -> str | None:
    """Return the value of an option that must be known before the others are parsed.

    If it is given several times, the last value; None if it is not given.

    >>> value_of(["--run=a", "--seed", "5"], "--seed")
    '5'
    """
    found, typed = None, before_text(arguments)
    for i, word in enumerate(typed):
        name, joined, value = word.partition("=")
        if name == option and (joined or typed[i + 1 :]):
            found = value if joined else typed[i + 1]
    return found


def accepts_changes(arguments: Sequence[str]) -> bool:
    """Return whether --accept-changes is given, before the options are parsed.

    >>> accepts_changes(["--accept-changes"]), accepts_changes(["--", "--accept-changes"])
    (True, False)
    """
    return "--accept-changes" in {word.replace("_", "-") for word in before_text(arguments)}


def named_model(arguments: Sequence[str], use: str) -> tuple[str | None, list[str], Any]:
    """Load the model that the first argument names.

    Return (name, other arguments, model). Without a name, when help is asked for, the model is
    None.
    """
    name, rest = named(arguments, use)
    trained = None if name is None else load_model(Path(name), accepts_changes(rest))
    return name, rest, trained


@dataclass(frozen=True)
class ModelOptions:
    """Options for loading a trained model."""

    device: str = CPU
    """Where to compute: cpu; with PyTorch cuda, cuda:1, or torch:DEVICE."""
    accept_changes: bool = False
    """Take a model whose files were changed after it was saved."""
    ensemble: tuple[Path, ...] = ()
    """Encoder-decoders with the same tokenizer that answer together with this one: each token has
    the mean of their probabilities."""

    def placed(self, trained: Any) -> Any:
        """Move a model to the device, and return it, or its ensemble with the other models.

        Raises `UsageError` if an ensemble is not of encoder-decoders or a model cannot be loaded.
        """
        if self.ensemble and not isinstance(trained, Seq2SeqTask):
            raise UsageError(f"--ensemble is for encoder-decoders; this model is {trained.name}")
        place(trained.model, self.device)
        if not self.ensemble:
            return trained
        with raised_as(UsageError, UserError, where="--ensemble, which texts go before"):
            others = [load_model(path, self.accept_changes) for path in self.ensemble]
        for other in others:
            place(other.model, self.device)
        return trained.ensemble(*others)


@dataclass(frozen=True)
class SamplingOptions:
    """Sampling instead of search; any of these turns it on."""

    temperature: float | None = None
    """Divide the log-probabilities by this: below 1 less random, above 1 more random."""
    top_k: int | None = None
    """Sample from this many of the likeliest tokens; 0: from all."""
    top_p: float | None = None
    """Sample from the fewest likeliest tokens whose probabilities sum to this."""
    min_p: float | None = None
    """Leave out tokens less likely than this fraction of the likeliest token's probability."""
    seed: int | None = None
    """Random seed of the samples."""
    samples: int | None = None
    """How many answers to draw for each text."""

    def config(self, search: SearchConfig, saved: SearchConfig) -> SampleConfig | None:
        """Return the sampling settings, or None for a search if no option is given.

        search, saved: as in `sampling_of`.
        """
        given = {name: value for name, value in vars(self).items() if value is not None}
        return sampling_of(search, given, saved) if given else None


def help_of(function: Callable[..., int], command: str, whole: bool = True) -> str:
    """Return the help of a command in the user's language, as wide as the terminal.

    whole: False only names the options in groups if there are many.
    """
    width = shutil.get_terminal_size().columns
    text, _, _ = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    groups = _groups(function)
    typed_first = "".join(f" {typed}" for typed, _ in groups[POSITIONAL])
    usage = f"{tr('usage:')} pellucid {command} [-h] [OPTIONS]{typed_first}"
    parts = [wrapped(usage, width, later=" " * 7)]
    parts += [wrapped(tr(" ".join(paragraph.split())), width) for paragraph in text.split("\n\n")]
    short = not whole and sum(map(len, groups.values())) >= MANY
    if short:
        explained = tr("explain every option, those in groups too")
        groups[OPTIONS].insert(1, (HELP_ALL, explained))
    for title, listed in groups.items():
        named_options = title.replace(POSITIONAL, tr(POSITIONAL)).replace(OPTIONS, tr(OPTIONS))
        if short and title not in (POSITIONAL, OPTIONS):
            flags = ", ".join(typed.split(",")[0].split()[0] for typed, _ in listed if typed)
            rows = [wrapped(flags, width, "  ", "  ")]
        else:
            rows = [_row(typed, what, width) for typed, what in listed]
        parts += ["\n".join([f"{named_options}:", *rows])] if listed else []
    return "\n\n".join(parts)


def _typed(function: Callable[..., int]) -> list[str]:
    """Return each argument of a command as the help writes it, such as "--seed INT"."""
    return [typed for entries in _groups(function).values() for typed, _ in entries if typed]


def _groups(function: Callable[..., int]) -> dict[str, list[tuple[str, str]]]:
    """Return the help entries of a command by heading: (how it is typed, description).

    Positional arguments are among them. An entry that is typed "" describes its heading.
    """
    _, _, args = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    docs = dict(line.split(": ", 1) for line in re.sub(r"\n {8,}", " ", args).splitlines())
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, list[tuple[str, str]]] = {POSITIONAL: [], OPTIONS: []}
    groups[OPTIONS].append(("-h, --help", tr("show this help message and exit")))
    parameters = inspect.signature(function).parameters.items()
    for name, parameter in sorted(parameters, key=lambda item: is_dataclass(item[1].default)):
        named = (m.name for m in get_args(hints[name])[1:] if hasattr(m, "name"))
        group = POSITIONAL if parameter.kind is parameter.POSITIONAL_ONLY else OPTIONS
        what = docs.get(f"    {name}", "")
        with RULES:
            entries = _entries(group, next(named, name), hints[name], parameter.default, what)
            for title, typed, what in entries:
                groups.setdefault(title, []).append((typed, what))
    return groups


def _entries(group: str, name: str, kind: Any, default: Any, what: str) -> Iterator[Entry]:
    """Yield the help entry of a parameter, or the entries of a dataclass of settings."""
    if is_dataclass(default):
        if name:
            group = f"{name} {OPTIONS}"
            heading = what or (kind is type(default) and kind.__doc__)
            if heading:
                yield group, "", tr(" ".join(heading.split()))
        settings = StructTypeInfo.make(type(default), default, in_union_context=False)
        spec = ConstructorRegistry.get_struct_spec(settings)
        assert isinstance(spec, StructConstructorSpec)
        for field in spec.fields:
            own = f"{name}.{field.name}" if name else field.name
            meaning = field.helptext() if callable(field.helptext) else field.helptext
            yield from _entries(group, own, field.type, field.default, meaning or "")
        return
    read = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kind, set()))
    if isinstance(read, UnsupportedTypeAnnotationError):  # decided by the recipe
        return
    flag = name.replace("_", "-")
    if group == POSITIONAL:
        typed = flag.upper() if default is inspect.Parameter.empty else f"[{flag.upper()}]"
    elif isinstance(default, bool):
        prefix, dot, last = flag.rpartition(".")
        typed = f"--{flag}, --{prefix}{dot}no-{last}"
    else:
        typed = f"--{flag} {_metavar(read.metavar)}"
    yield group, typed, " ".join(filter(None, [tr(" ".join(what.split())), _hint(default, read)]))


def _metavar(written: str) -> str:
    """Return the placeholder of an option's value, without the None of optional values.

    >>> _metavar("{None}|INT"), _metavar("{None}|{STR STR}"), _metavar("{None,near,far}")
    ('INT', 'STR STR', '{near,far}')
    """
    plain = written.removeprefix("{None}|")
    return (plain if plain == written else plain.strip("{}")).replace("{None,", "{")


def _hint(default: Any, spec: PrimitiveConstructorSpec[Any]) -> str:
    """Describe the default of an option; "" if it has none."""
    if default is inspect.Parameter.empty:
        return tr("(required)")
    if isinstance(default, bool):
        shown = tr("on") if default else ""
    else:
        shown = " ".join(spec.str_from_instance(default))
    return tr("(default: {})").format(shown) if shown not in ("", "None") else ""


def _row(typed: str, what: str, width: int) -> str:
    """Format an option with its description; on one line if it is short.

    >>> print(_row("--seed INT", "Random seed.", 80))
      --seed INT            Random seed.
    """
    head = f"  {typed}  ".ljust(INDENT) if typed else "  "
    if len(head) <= INDENT:
        return wrapped(what, width, head, " " * len(head)) or head.rstrip()
    rest = wrapped(what, width, " " * INDENT, " " * INDENT)
    return "\n".join(filter(None, [wrapped(typed, width, "  ", " " * 4), rest]))


@RULES.primitive_rule
def _model_type(info: PrimitiveTypeInfo) -> UnsupportedTypeAnnotationError | None:
    """Tell tyro to make no option of a model's type, which the recipe determines."""
    values = get_args(info.type)
    one = get_origin(info.type) is Literal and str(values[0]).startswith("pellucid-")
    return UnsupportedTypeAnnotationError(()) if one else None


@RULES.primitive_rule
def _name(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Tell tyro to parse a name of a registry, including the user's own parts."""
    if not isinstance(info.type, type) or not issubclass(info.type, Name):
        return None
    read_all()
    words: Any = Literal[info.type.words()]
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(words, info.markers))
    assert isinstance(spec, PrimitiveConstructorSpec)
    return spec
