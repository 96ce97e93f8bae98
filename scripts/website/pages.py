"""The pages of the site that are made from the code: topics, recipes, settings, parts, sources.

`generated()` maps each page's path to the function that writes it. The hook calls them while the
site is built, so that generated pages are not in the repository and cannot be out of date.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args, get_origin, get_type_hints

import columns
import griffe
import numpy as np
from formulas import clauses, mathml

from pellucid.apps.cli import language as language_of_the_command_line
from pellucid.apps.teach.topic import TOPIC_LINK, TOPICS, Block, measured, quoted, read, value
from pellucid.check import op_cases
from pellucid.core.dispatch import kernel_of
from pellucid.data.corpora import CORPORA
from pellucid.models.positions import POSITIONS
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.norms import NORMS
from pellucid.optim import OPTIMIZERS
from pellucid.optim.schedules import SCHEDULES
from pellucid.training.config import load_recipe, recipe_names

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
Language = Literal["en", "ko"]
LANGUAGES: tuple[Language, ...] = ("en", "ko")
Write = Callable[[], str]

WORDS: dict[str, tuple[str, str]] = {
    "change": (
        "Change the backward of `{}` in the browser, and see its check fail",
        "`{}`의 역전파를 브라우저에서 바꿔 보고, 검사가 틀렸다고 하는지 보기",
    ),
    "topics": ("The mathematics, step by step", "수식 한 단계씩"),
    "topics_about": (
        "Each page has the equation, the derivation next to the lines of code that compute it, the "
        "edge cases, and a numeric check that ran when this site was built. `pellucid explain "
        "TOPIC` prints the same in the terminal.",
        "페이지마다 수식, 유도 과정과 그 단계를 계산하는 코드, 경계 사례, 그리고 이 사이트를 만들 "
        "때 실행한 수치 검증이 있습니다. 터미널에서는 `pellucid explain 주제`로 같은 내용을 볼 수 "
        "있습니다.",
    ),
    "topic": ("topic", "주제"),
    "about": ("what it is", "설명"),
    "check": ("check", "검증"),
    "error": ("result", "결과"),
    "limit": ("limit", "허용"),
    "run": ("Run it yourself", "직접 실행하기"),
    "figure": ("Move it", "직접 움직여 보기"),
    "figure_below": (
        "There is a figure to move at the end of this page",
        "이 페이지 끝에 직접 움직여 보는 그림이 있습니다",
    ),
    "script": ("This figure needs JavaScript.", "이 그림에는 자바스크립트가 필요합니다."),
    "line": ("line", "줄"),
    "recipes": ("Recipes", "레시피"),
    "recipes_about": (
        "A recipe is a TOML file: data, tokenizer, model, training, search and evaluation. "
        "`pellucid train NAME` trains one. Any [setting](settings.md) may be changed on the "
        "command line, for example `--training.epochs 2`. What they reach is on the page "
        "[quality](quality.md).",
        "레시피는 데이터, 토크나이저, 모델, 학습, 탐색, 평가를 정하는 TOML 파일입니다. `pellucid "
        "train 이름`으로 학습합니다. [설정](settings.md)은 모두 명령줄에서 바꿀 수 있습니다. "
        "예를 들면 `--training.epochs 2`입니다. 레시피별 성능은 [품질](quality.md)에 있습니다.",
    ),
    "recipe": ("recipe", "레시피"),
    "model": ("model", "모델"),
    "data": ("data", "데이터"),
    "corpora": ("Data", "데이터"),
    "corpora_about": (
        "Where a recipe's data comes from, and under which licence. Downloads are checked by their "
        "SHA-256.",
        "레시피가 쓰는 데이터의 출처와 라이선스입니다. 내려받은 파일은 SHA-256으로 확인합니다.",
    ),
    "corpus": ("corpus", "말뭉치"),
    "origin": ("origin", "출처"),
    "licence": ("licence", "라이선스"),
    "settings": ("Settings", "설정"),
    "settings_about": (
        "Every setting of a recipe: its key in the TOML file, which is also the option of "
        "`pellucid train`. Put `--` in front, and write `-` for `_`: `training.clip_norm` is "
        "`--training.clip-norm`.",
        "레시피의 모든 설정입니다. TOML 파일의 키이자 `pellucid train`의 옵션입니다. 옵션으로 쓸 "
        "때는 앞에 `--`를 붙이고 `_`를 `-`로 바꿉니다. `training.clip_norm`은 "
        "`--training.clip-norm`입니다.",
    ),
    "setting": ("setting", "설정"),
    "type": ("type", "타입"),
    "default": ("default", "기본값"),
    "meaning": ("meaning", "의미"),
    "parts": ("Modern parts", "최신 구성 요소"),
    "parts_about": (
        "What may be exchanged in a model or in training. The tables are the registries of the "
        "code: a new part is one file and one row, and then it is a choice on the command line and "
        "a row here. [How to add one](extending.md).",
        "모델과 학습에서 바꿔 끼울 수 있는 부분입니다. 표는 코드의 레지스트리에서 그대로 만듭니다. "
        "새 부품은 파일 하나와 행 하나로 추가되고, 바로 명령줄의 선택지와 이 표의 행이 됩니다. "
        "[추가하는 방법](extending.md)을 보세요.",
    ),
    "activations": ("Activations", "활성화 함수"),
    "norms": ("Norms", "정규화"),
    "positions": ("Positions", "위치 정보"),
    "optimizers": ("Optimizers", "옵티마이저"),
    "schedules": ("Learning-rate schedules", "학습률 스케줄"),
    "name": ("name", "이름"),
    "formula": ("what it computes", "계산"),
    "kernel": ("compiled kernel", "컴파일된 커널"),
    "names_elsewhere": ("in other formats", "다른 형식에서의 이름"),
    "states": ("remembers", "저장하는 값"),
    "learns": ("learns", "학습하는 값"),
    "reads": ("reads", "읽는 설정"),
    "kept": ("in the file", "파일 안"),
    "option": ("Option", "옵션"),
    "yes": ("yes", "있음"),
    "no": ("no", "없음"),
    "gated": ("gated: two inputs to an output", "게이트: 입력 둘, 출력 하나"),
    "table": ("a fixed table, added to the tokens", "고정된 표를 토큰에 더함"),
    "learned": ("a learned table, added to the tokens", "학습되는 표를 토큰에 더함"),
    "rotate": ("rotates queries and keys", "쿼리와 키를 회전"),
    "rotate_cross": ("in cross-attention too", "크로스 어텐션에서도"),
    "rule": (
        "adds a number to the scores, by distance and head",
        "거리와 헤드에 따라 정해진 값을 점수에 더함",
    ),
    "relative": (
        "adds a learned number to the scores, by distance and head",
        "거리와 헤드에 따라 학습되는 값을 점수에 더함",
    ),
    "weight": ("weight", "weight"),
    "both": ("weight and bias", "weight와 bias"),
}


def word(name: str, language: Language) -> str:
    """Return one of this file's headings in one language."""
    return WORDS[name][LANGUAGES.index(language)]


@cache
def korean() -> dict[str, str]:
    """Return the Korean of the texts in the code, by their English."""
    own = tomllib.loads(Path(__file__).with_name("korean.toml").read_text(encoding="utf-8"))
    return {**language_of_the_command_line.korean(), **own}


def said(english: str, language: Language) -> str:
    """Translate a text of the code; it stays English if it has no Korean yet."""
    return korean().get(english, english) if language == "ko" else english


def generated() -> dict[str, Write]:
    """Return the function that writes each generated page, by its path below docs/."""
    pages: dict[str, Write] = {}
    for language in LANGUAGES:
        suffix = "" if language == "en" else f".{language}"
        pages[f"explain/index{suffix}.md"] = partial(topics, language)
        for name in TOPICS:
            pages[f"explain/{name}{suffix}.md"] = partial(explained, name, language)
        file = source_page(f"examples/transformer{suffix}.py")
        pages[f"columns{suffix}.md"] = partial(columns.page, language, relative(file, "columns.md"))
        for make in (recipes, settings, parts):
            pages[f"{make.__name__}{suffix}.md"] = partial(make, language)
    for module in API:
        pages[f"api/{module}.md"] = partial(reference, module)
        pages[f"api/{module}.ko.md"] = partial(names_of, module)
    return pages | {
        source_page(path): partial(source, path) for path in linked() if not path.endswith(".ipynb")
    }


# the topics of `pellucid explain`


def topics(language: Language) -> str:
    """Write the list of the topics."""
    rows = [
        (f"[{title.text}]({name}.md)", escaped(about.text))
        for name in TOPICS
        for title, about in [read(name, language)[:2]]
    ]
    head = f"# {word('topics', language)}\n\n{word('topics_about', language)}\n"
    return head + "\n" + table([word("topic", language), word("about", language)], rows)


FIGURES = {
    "attention": ("attention", ""),
    "scaling": ("attention", "unscaled"),
    "masks": ("attention", "causal"),
    "softmax": ("softmax", ""),
    "layer_norm": ("layer_norm", ""),
    "gelu": ("activation", "gelu"),
    "relu": ("activation", "relu"),
    "linear": ("linear", ""),
    "cross_entropy": ("cross_entropy", ""),
    "dropout": ("dropout", ""),
}
"""Topics with an interactive figure: its name in viewer/src/figures, and its initial state."""


def figure(name: str, language: Language, **data: str) -> str:
    """Return the placeholder of an interactive figure in a page."""
    given = "".join(f' data-{key}="{value}"' for key, value in data.items() if value)
    return f'<div class="pf" data-figure="{name}"{given}><p>{word("script", language)}</p></div>'


def explained(name: str, language: Language) -> str:
    """Write the page of one topic.

    Its checks run here, and a failed one stops the build.
    """
    lines: list[str] = []
    for checks, group in itertools.groupby(
        read(name, language), lambda block: block.kind in ("check", "gradients")
    ):
        if checks:
            heads = [word(head, language) for head in ("check", "error", "limit")]
            lines.append(table(heads, [_check(name, block) for block in group]))
            continue
        for block in group:
            lines += shown(block, f"explain/{name}.md", language)
    code = [block.of.split()[0] for block in read(name, language) if block.kind == "code"]
    lines += changed(code, f"explain/{name}.md", language)
    lines.append(f"{word('run', language)}: `pellucid explain {name} --lang {language}`")
    if name in FIGURES:
        drawn, start = FIGURES[name]
        lines.insert(2, f"[{word('figure_below', language)}](#figure)")
        lines.append(f"## {word('figure', language)} {{ #figure }}")
        lines.append(figure(drawn, language, start=start))
    return "\n\n".join(lines) + "\n"


def _check(name: str, block: Block) -> tuple[str, str, str]:
    """Return a row of a topic's table of checks.

    Raises `ValueError` if the check fails.
    """
    error, limit = measured(block.kind, block.of)
    if not error <= limit:
        raise ValueError(f"topic {name}: {block.text}: {error:.1e} is over {limit}")
    return escaped(block.text), f"{error:.1e}", f"{limit:.0e}"


def shown(block: Block, here: str, language: Language) -> Iterator[str]:
    """Yield the Markdown of one block of a topic."""
    match block.kind:
        case "title":
            yield f"# {block.text}"
        case "section":
            yield f"## {block.text}"
        case "step":
            yield formula(block.text, f'<span class="step">{block.step}</span>')
        case "formula":
            yield from map(formula, block.text.split("\n"))
        case "code":
            yield from _quoted(block.of, here, language)
        case "example":
            with np.printoptions(linewidth=88):
                yield f"```pycon\n>>> {block.text}\n{value(block.text)!r}\n```"
        case "picture":
            suffix = "" if language == "en" else f".{language}"
            command = f"pellucid plot {block.of}"
            yield f"![{command}](../articles/{block.of}{suffix}.png)"
            yield f"`{command}`"
        case _:
            yield _paragraph(block.text)


def _paragraph(text: str) -> str:
    """Format a topic's paragraph: its links, links from articles' numbers, and symbols.

    >>> _paragraph("From q_i to [Softmax](softmax.md); article 003")[:65]
    'From <math><msub><mi>q</mi><mi>i</mi></msub></math> to [Softmax]('
    >>> _paragraph("a row x: y_t = s x_t").count("<math>")
    1
    """
    parts = TOPIC_LINK.split(text)  # text, title, name, text, …
    parts[::3] = [ARTICLE.sub(r"[\g<0>](../articles/map.md)", _with_symbols(p)) for p in parts[::3]]
    for i in range(1, len(parts), 3):
        parts[i : i + 2] = [f"[{parts[i]}](", f"{parts[i + 1]}.md)"]
    return "".join(parts)


ARTICLE = re.compile(r"(?:article|글) \d{3}")
LETTER = r"[b-zB-HJ-Z]²?(?![a-zA-Z\d_'’])"  # "a", "A" and "I" may be words
INDEXED = (
    r"(?:√[A-Za-z]|[√∂]?(?:[A-ZΣΠa-zω]|d[a-zA-Z])_(?:[a-z]{1,2}|[A-Z]|model))"
    r"(?![a-zA-Z\d_²(])"
)
SYMBOL = re.compile(
    rf"`[^`]+`|(?<![\w/.'’])(?:−?(?:{LETTER} )*{INDEXED}|{LETTER}·{LETTER})"
    rf"(?:(?: ?[=·] ?| )(?:{INDEXED}|{LETTER}))*"
)
"""Code, or a term in a paragraph, such as "W_ls", "√d_k", "q·k" or "Z_lj = Σ_s W_ls V_sj"."""


def _with_symbols(text: str) -> str:
    """Format a paragraph's text for Markdown, its letters with indices as MathML."""
    found = [each if each.startswith("`") else symbol(each) for each in SYMBOL.findall(text)]
    texts = [escaped(part) for part in SYMBOL.split(text)]
    whole = "".join(part + math for part, math in zip(texts, [*found, ""], strict=True))
    # Markdown takes a line that begins with <math> for a block.
    return re.sub("^<math>", "<span></span><math>", whole, flags=re.MULTILINE)


def symbol(text: str) -> str:
    """Convert one symbol to inline MathML.

    >>> symbol("W_ls")
    '<math><msub><mi>W</mi><mrow><mi>l</mi><mi>s</mi></mrow></msub></math>'
    """
    xml = mathml(text)
    return "<math>" + xml.partition(">")[2]


def formula(text: str, before: str = "") -> str:
    """Convert a formula to HTML with MathML; narrow pages break it between clauses."""
    parts = "".join(f"<span>{mathml(clause)}</span>" for clause in clauses(text))
    return f'<div class="formula">{before}{parts}</div>'


def source_of(file: str) -> str:
    """Return the path in the repository of a file that a topic quotes.

    >>> source_of("ops/gelu.py"), source_of("transformer.py")
    ('src/pellucid/ops/gelu.py', 'examples/transformer.py')
    """
    return f"examples/{file}" if file == "transformer.py" else f"src/pellucid/{file}"


def _quoted(of: str, here: str, language: Language) -> Iterator[str]:
    """Yield the code that a topic quotes; successive lines are in one block."""
    for _, group in itertools.groupby(
        enumerate(quoted(of)), lambda numbered: (numbered[1].file, numbered[1].number - numbered[0])
    ):
        lines = [line for _, line in group]
        file, number = lines[0].file, lines[0].number
        target = relative(f"{source_page(source_of(file))}#__codelineno-0-{number}", here)
        code = "\n".join(line.text for line in lines)
        where = f"{file}, {word('line', language)} {number}"
        if language == "ko":
            where = f"{file}, {number}번째 {word('line', language)}"
        yield f"```python\n{code}\n```\n\n[{where}]({target}){{ .where }}"


def changed(functions: Iterable[str], here: str, language: Language) -> list[str]:
    """Return links that open the backward of each op among the functions in the workbench."""
    known = {case.op for case in op_cases()}
    names = dict.fromkeys(name.removeprefix("ops.").removesuffix("_backward") for name in functions)
    target = f"{relative('workbench/workbench.md', here)}#op="
    says = word("change", language)
    return [f"[{says.format(op)}]({target}{op})" for op in names if op in known]


# recipes, settings, parts


def recipes(language: Language) -> str:
    """Write the list of shipped recipes, with their files and the origin of their data."""
    say = partial(word, language=language)
    rows, listings = [], []
    for name in recipe_names():
        recipe = load_recipe(name)
        text = (files("pellucid") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
        values = tomllib.loads(text)
        family = values.get("model", {}).get("model_type", "seq2seq")
        rows.append(
            (
                f"[`{name}`](#{name})",
                f"`{family}`",
                recipe.data.corpus,
                escaped(said(recipe.description, language)),
            )
        )
        listings.append(
            f"### {name} {{ #{name} }}\n\n```console\npellucid train {name}\n```\n\n"
            f'```toml title="recipes/{name}.toml"\n{text.strip()}\n```'
        )
    heads = [say("recipe"), say("model"), say("data"), say("about")]
    corpora = [
        (
            f"`{corpus.name}`",
            *(escaped(said(text, language)) for text in (corpus.origin, corpus.licence)),
        )
        for corpus in CORPORA.values()
    ]
    return "\n\n".join(
        [
            f"# {say('recipes')}",
            say("recipes_about"),
            table(heads, rows),
            f"## {say('corpora')}",
            say("corpora_about"),
            table([say("corpus"), say("origin"), say("licence")], corpora),
            f"## {say('kept')}",
            *listings,
        ]
    )


@cache
def _package() -> griffe.Object | griffe.Alias:
    """Return the package as parsed by griffe, with docstrings of attributes."""
    return griffe.load("pellucid", search_paths=[str(ROOT / "src")])


def settings(language: Language) -> str:
    """Write all settings of a recipe with type, default and docstring."""
    say = partial(word, language=language)
    heads = [say("setting"), say("type"), say("default"), say("meaning")]
    lines = [f"# {say('settings')}", say("settings_about")]
    for section, rows in sections(language).items():
        lines += [f"## {section}", table(heads, rows)]
    return "\n\n".join(lines) + "\n"


SECTIONS = {
    "data": ("training.config.DataConfig",),
    "tokenizer": ("training.config.TokenizerConfig",),
    "model": (
        "models.config.StackConfig",
        "models.config.Seq2SeqConfig",
        "models.config.LanguageConfig",
        "models.config.CausalLMConfig",
        "models.config.MaskedLMConfig",
    ),
    "training": ("optim.config.StepConfig", "training.config.TrainingConfig"),
    "training.optimizer": ("optim.config.OptimizerConfig",),
    "training.schedule": ("optim.config.ScheduleConfig",),
    "search": ("models.decoding.SearchConfig",),
    "search.constraints": ("models.decoding.Constraints",),
    "evaluation": ("training.config.EvaluationConfig",),
}
"""The dataclasses of each section of a recipe."""


def sections(language: Language = "en") -> dict[str, list[tuple[str, ...]]]:
    """Return the rows (key, type, default, meaning) of each section of a recipe."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for section, classes in SECTIONS.items():
        rows = found.setdefault(section, [])
        seen = set()
        for path in classes:
            module, _, name = path.rpartition(".")
            kind = getattr(importlib.import_module(f"pellucid.{module}"), name)
            attributes, hints = _package()[path].all_members, get_type_hints(kind)
            for field in dataclasses.fields(kind):
                attribute = attributes[field.name]
                known = field.name in seen or f"{section}.{field.name}" in SECTIONS
                if known or not attribute.docstring:
                    continue
                seen.add(field.name)
                meaning = said(" ".join(attribute.docstring.value.split()), language)
                choices = get_args(hints[field.name])
                if get_origin(hints[field.name]) is Literal:
                    type_ = ", ".join(f"`{choice}`" for choice in choices)
                else:
                    type_ = f"`{attribute.annotation}`".replace("|", "\\|")
                default = "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
                rows.append((f"`{section}.{field.name}`", type_, default, escaped(meaning)))
    return found


def parts(language: Language) -> str:
    """Write the registries as tables."""
    say = partial(word, language=language)
    yes = {True: say("yes"), False: say("no")}
    known = []
    for activation in ACTIVATIONS.values():
        names = [f"CTranslate2 `{activation.ctranslate2}`"] if activation.ctranslate2 else []
        names += ["ONNX"] if activation.onnx else []
        names += [f"Hugging Face `{activation.huggingface[0]}`"] if activation.huggingface else []
        text = escaped(said(summary(activation.op.forward), language))
        text += f" ({say('gated')})" if activation.gates > 1 else ""
        known.append((f"`{activation.name}`", text, yes[bool(activation.kernel)], ", ".join(names)))
    norms = [
        (
            f"`{norm.name}`",
            escaped(said(summary(norm.op.forward), language)),
            say("both" if norm.has_bias else "weight"),
        )
        for norm in NORMS.values()
    ]
    schemes = [
        (
            f"`{name}`",
            "; ".join(
                say(how)
                for how, is_so in vars(scheme).items()
                if how not in ("name", "onnx") and is_so
            ),
        )
        for name, scheme in POSITIONS.items()
    ]
    optimizers = [
        (
            f"`{optimizer.name}`",
            escaped(said(optimizer.about, language)),
            ", ".join(f"`{state}`" for state in optimizer.states),
            yes[bool(kernel_of(optimizer.step.__name__))],
        )
        for optimizer in OPTIMIZERS.values()
    ]
    schedules = [
        (
            f"`{schedule.name}`",
            escaped(said(schedule.about, language)),
            ", ".join(f"`{name}`" for name in schedule.reads),
        )
        for schedule in SCHEDULES.values()
    ]
    tables: Sequence[tuple[str, str, list[str], Sequence[Sequence[str]]]] = (
        ("activations", "model.activation-function",
         ["name", "formula", "kernel", "names_elsewhere"], known),
        ("norms", "model.norm-type", ["name", "formula", "learns"], norms),
        ("positions", "model.positions", ["name", "about"], schemes),
        ("optimizers", "training.optimizer.name",
         ["name", "about", "states", "kernel"], optimizers),
        ("schedules", "training.schedule.name", ["name", "about", "reads"], schedules),
    )  # fmt: skip
    lines = [f"# {say('parts')}", say("parts_about")]
    for title, option, heads, rows in tables:
        lines += [
            f"## {say(title)} {{ #{title} }}",
            f"{say('option')}: `--{option}`",
            table([say(head) for head in heads], rows),
        ]
    return "\n\n".join(lines) + "\n"


def summary(function: Callable[..., Any]) -> str:
    """Describe a function's result by the first sentence of its docstring.

    >>> from pellucid import ops
    >>> summary(ops.relu)
    'max(0, x)'
    """
    sentence, *_ = re.split(r"(?<=[.;]) |\n\n", (inspect.getdoc(function) or "").strip())
    return " ".join(sentence.split()).removeprefix("Return ").rstrip(".;")


# the API reference, which is in English; its Korean pages list the names


API = {
    "pellucid": "pellucid",
    "nn": "pellucid.nn",
    "functional": "pellucid.nn.functional",
    "ops": "pellucid.ops",
}


def public(page: str) -> dict[str, str]:
    """Return the names in a module's `__all__`, each with the path of its definition.

    Modules among them are left out.
    """
    module = importlib.import_module(API[page])
    found = {name: getattr(module, name) for name in module.__all__}
    return {
        name: f"{value.__module__}.{value.__qualname__}"
        for name, value in found.items()
        if not inspect.ismodule(value)
    }


def reference(page: str) -> str:
    """Write the reference of one module: a mkdocstrings directive for each public name.

    A name is given with the file that defines it, because `ops.attention` is a file as well.
    """
    about = inspect.getdoc(importlib.import_module(API[page])) or ""
    here = f"api/{page}.md"
    directives = "\n\n".join(
        "\n\n".join([f"::: {path}", *changed([name] * name.endswith("_backward"), here, "en")])
        for name, path in public(page).items()
    )
    return f"# {API[page]}\n\n{about}\n\n{directives}\n"


def names_of(page: str) -> str:
    """Write the Korean list of a module's names, with links to the English reference."""
    english = f"../../api/{page}.html"
    links = (
        f'- <a href="{english}#{path}" hreflang="en"><code>{name}</code></a>'
        for name, path in public(page).items()
    )
    about = (
        "API 설명은 코드의 docstring에서 만들며 영어로만 있습니다. 이름을 누르면 영어 페이지로 "
        "갑니다."
    )
    return f"# {API[page]}\n\n{about}\n\n" + "\n".join(links) + "\n"


# the sources that pages link to


LINK = re.compile(r"(?<=\]\()(?:\.\./)+([^)#\s]+)(?=[)#])")
"""A link in docs/*.md that may lead outside docs/."""


@cache
def linked() -> tuple[str, ...]:
    """Return the files and folders outside docs/ that pages link to, relative to the root."""
    found = set()
    for page in DOCS.rglob("*.md"):
        for match in LINK.finditer(page.read_text(encoding="utf-8")):
            if inside := outside(match.group(0), page.relative_to(DOCS).as_posix()):
                found.add(inside)
    for block in itertools.chain.from_iterable(read(name, "en") for name in TOPICS):
        if block.kind == "code":
            found |= {source_of(line.file) for line in quoted(block.of)}
    return tuple(sorted(found))


def outside(link: str, page: str) -> str:
    """Return the target of a page's link, relative to the root.

    "" if it is within docs/.

    >>> outside("../../src/pellucid/ops/gelu.py", "articles/map.md")
    'src/pellucid/ops/gelu.py'
    """
    target = os.path.normpath(f"docs/{PurePosixPath(page).parent}/{link}")
    return "" if target.startswith(("docs/", "../")) else target


def source_page(path: str) -> str:
    """Return the site's path for a file or folder of the repository.

    A dot in the name is replaced, because it would be read as a language.

    >>> source_page("src/pellucid/ops/gelu.py")
    'source/src/pellucid/ops/gelu_py.md'
    """
    if path.endswith((".ipynb", ".svg", ".md")):
        return f"source/{path}"
    return f"source/{path.replace('.', '_')}.md"


def assets() -> Iterator[str]:
    """Yield the files outside docs/ that the site contains unchanged: notebooks and pictures."""
    for path in linked():
        if path.endswith(".ipynb"):
            yield path
        if path.endswith("report.md"):
            folder = (ROOT / path).parent
            yield from (file.relative_to(ROOT).as_posix() for file in sorted(folder.glob("*.svg")))


LANGUAGE_OF = {".py": "python", ".toml": "toml", ".jsonl": "json", ".json": "json"}
FRONT = "---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n"


def source(path: str) -> str:
    """Write the page of a file with line numbers, of a report, or of a folder."""
    place = ROOT / path
    if place.is_dir():
        rows = []
        for entry in sorted(path for path in place.iterdir() if path.name != "__pycache__"):
            name = f"{entry.name}/" if entry.is_dir() else entry.name
            known = entry.relative_to(ROOT).as_posix()
            target = relative(source_page(known), source_page(path)) if known in linked() else ""
            rows.append(f"- [{name}]({target})" if target else f"- {name}")
        return f"{FRONT}# {path}\n\n" + "\n".join(rows) + "\n"
    text = place.read_text(encoding="utf-8")
    if path.endswith(".md"):
        return FRONT.replace("hide:\n  - toc\n", "") + _relinked(text, path)
    language = LANGUAGE_OF.get(place.suffix, "text")
    return f'{FRONT}# {path}\n\n````{language} linenums="1"\n{text.rstrip()}\n````\n'


def _relinked(text: str, path: str) -> str:
    """Adapt the links in a page of the repository to the site.

    A picture next to it stays; a link to a file that the site does not have becomes plain text.
    """

    def link(match: re.Match[str]) -> str:
        title, address = match.groups()
        target = os.path.normpath(f"{PurePosixPath(path).parent}/{address}")
        if target.startswith("docs/"):
            return f"[{title}]({relative(target.removeprefix('docs/'), source_page(path))})"
        if target in linked():
            return f"[{title}]({relative(source_page(target), source_page(path))})"
        return title

    return re.sub(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)", link, text)


# Markdown


def escaped(text: str) -> str:
    """Escape plain text for Markdown; `code` stays code.

    >>> escaped("dP_ij * [x > 0], `a_b`")
    'dP\\\\_ij \\\\* \\\\[x &gt; 0\\\\], `a_b`'
    """
    parts = re.split(r"(`[^`]+`)", text)
    for i in range(0, len(parts), 2):
        plain = parts[i].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        parts[i] = re.sub(r"([\\`*_{}\[\]|~^])", r"\\\1", plain)
    return "".join(parts)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def relative(target: str, page: str) -> str:
    """Return a link from one page below docs/ to another."""
    path, _, anchor = target.partition("#")
    link = os.path.relpath(path, PurePosixPath(page).parent)
    return f"{link}#{anchor}" if anchor else link
