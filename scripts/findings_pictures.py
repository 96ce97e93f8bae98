"""Draw the pictures of docs/findings.md: docs/findings/NAME.svg and NAME.ko.svg.

A study's picture shows the differences in the metric of its first claim; three answers have another
picture. `python scripts/findings_pictures.py` draws them from results/studies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context

from pellucid.apps.lab.findings import Findings, gather
from pellucid.apps.lab.plots import Curves, draw_curves, draw_forest
from pellucid.apps.lab.results import read_results
from pellucid.apps.lab.study_file import load_study
from pellucid.system.language import speaking

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ROOT / "results" / "studies"
FOLDER = ROOT / "docs" / "findings"
HEAD = "Differences, seed by seed"
SELF_ATTENTION = "decoder.layers.{}.self_attn"
WORDS = {
    HEAD: "시드별 차이",
    "lower is better": "낮을수록 좋음",
    "higher is better": "높을수록 좋음",
    "(nats per token)": "(토큰당 nat)",
    "(nats per answer)": "(답변당 nat)",
    "train_loss over the exponent p": "지수 p에 따른 train_loss",
    "exponent p: scores / d_k^p": "지수 p: 점수 / d_k^p",
    "scores / ": "점수 / ",
    "tokens × √d_model": "토큰 × √d_model",
    "positions / √d_model": "위치 / √d_model",
    "Training loss of article 003's chatbot": "글 003의 챗봇: 학습 손실",
    "nats per answer": "답변당 nat",
    "epoch": "에폭",
    "Evenness of the decoder's self-attention": "디코더 셀프 어텐션이 고르게 보는 정도",
    "entropy / that of equal weights": "엔트로피 / 가중치가 모두 같을 때의 엔트로피",
    "step": "스텝",
    "learned scale: encoder": "학습한 스케일: 인코더",
    "learned scale: decoder": "학습한 스케일: 디코더",
    "learned scale: cross": "학습한 스케일: 크로스",
}
"""Korean of the texts in the pictures; the SVGs contain text, not paths."""
DARK = "@media (prefers-color-scheme: dark) {svg {filter: invert(.92) hue-rotate(180deg)}}"
"""Style that inverts a picture on a dark page and keeps its hues."""


def found(name: str) -> Findings:
    """Load a study with its stored runs."""
    return gather(load_study(name), read_results(STUDIES / f"{name}.jsonl"))


def differences(name: str) -> str:
    """Draw the differences in the metric of a study's first claim."""
    known = [c for c in found(name).comparisons if c.seeds]
    metric = found(name).study.plan.primary[0].metric
    return draw_forest([c for c in known if c.contrast.metric == metric])


def runs_of(change: str) -> list[Mapping[str, Any]]:
    """Return the stored runs of a variant of article 003's study."""
    return list(found("article-003").done[change].values())


def scalings() -> str:
    """Draw training losses for each scale of the scores and of the embeddings."""

    def curves(*changes: str) -> Curves:
        labels = ("scores / √d_k", "scores / d_k")
        return {
            label: [(run["curve"]["epoch"][9:], run["curve"]["train"][9:]) for run in runs_of(each)]
            for label, each in zip(labels, changes, strict=True)
        }

    panels = {
        "tokens × √d_model": curves("sqrt_d_k", "d_k"),
        "positions / √d_model": curves("positions", "positions_and_d_k"),
    }
    return draw_curves(panels, "Training loss of article 003's chatbot", "epoch", "nats per answer")


def evenness() -> str:
    """Draw the entropy of the upper decoder layers' attention during training, by scale."""

    def curve(run: Mapping[str, Any]) -> tuple[list[float], list[float]]:
        heads = [
            [h for n in (1, 2) for h in probe["attention"][SELF_ATTENTION.format(n)]["evenness"]]
            for probe in run["probes"]
        ]
        steps = [float(probe["step"]) for probe in run["probes"]]
        return steps, [sorted(values)[len(values) // 2] for values in heads]

    curves = {
        f"scores / {name}": [curve(run) for run in runs_of(change)]
        for name, change in (("√d_k", "sqrt_d_k"), ("d_k", "d_k"), ("d_k²", "d_k^2"))
    }
    title = "Evenness of the decoder's self-attention"
    return draw_curves({"": curves}, title, "step", "entropy / that of equal weights", marker="o")


def pictures() -> Iterator[tuple[str, str]]:
    """Yield (name, SVG) of every picture."""
    for path in sorted(STUDIES.glob("*.jsonl")):
        name = path.stem
        if name == "exponent":
            yield name, (STUDIES / name / "exponents-train_loss.svg").read_text(encoding="utf-8")
        else:
            yield name, differences(name)
    yield "scalings", scalings()
    yield "evenness", evenness()


def korean(svg: str) -> str:
    """Translate the texts in a picture into Korean."""
    for english, ours in WORDS.items():
        svg = svg.replace(english, ours)
    return svg


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with rc_context({"svg.hashsalt": "pellucid"}), speaking("en"):
        for name, drawn in pictures():
            svg = re.sub(r"\s*\n\s*", " ", drawn.replace("</style>", f"{DARK}</style>", 1))
            (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
            (FOLDER / f"{name}.ko.svg").write_text(korean(svg), encoding="utf-8")
    print(f"wrote {FOLDER.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
