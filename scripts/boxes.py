"""Draw a Transformer as boxes for the READMEs: docs/assets/transformer.svg and .ko.svg.

    python scripts/boxes.py            write both
    python scripts/boxes.py --check    exit with 1 if one is out of date

The colours follow the reader's light or dark theme. A box names the articles that explain it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from generated import write

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "assets"
FILES = {"en": FOLDER / "transformer.svg", "ko": FOLDER / "transformer.ko.svg"}
WIDTH, BOX, GAP = 236, 44, 14
"""Width and height of a box, and the gap between boxes, in px."""
ENCODER, DECODER = 40, 384
"""Left edges of the two stacks of boxes."""

STACKS: dict[int, tuple[tuple[str, str, str], ...]] = {
    ENCODER: (
        ("Words → vectors + positions", "단어 → 벡터 + 위치", "003"),
        ("Self-attention", "셀프 어텐션", "000 001 002 003 004"),
        ("Add, LayerNorm", "더하기, LayerNorm", "000 001 002"),
        ("Feed-forward network", "피드포워드 네트워크", "001 002 004"),
        ("Add, LayerNorm", "더하기, LayerNorm", "000 001 002"),
    ),
    DECODER: (
        ("Words so far → the same", "지금까지 쓴 단어 → 벡터 + 위치", "003"),
        ("Self-attention, no looking ahead", "셀프 어텐션(뒤는 가림)", "002"),
        ("Add, LayerNorm", "더하기, LayerNorm", "000 001 002"),
        ("Cross-attention to the source", "크로스 어텐션(입력 문장)", "002 004"),
        ("Add, LayerNorm", "더하기, LayerNorm", "000 001 002"),
        ("Feed-forward network", "피드포워드 네트워크", "001 002 004"),
        ("Add, LayerNorm", "더하기, LayerNorm", "000 001 002"),
        ("A probability for every word", "모든 단어의 확률", ""),
    ),
}
"""The boxes of each stack from the bottom up: (English, Korean, articles)."""
WORDS = {
    "title": ("A Transformer: encoder and decoder", "트랜스포머: 인코더와 디코더"),
    "encoder": ("Encoder, N layers", "인코더, 레이어 N개"),
    "decoder": ("Decoder, N layers", "디코더, 레이어 N개"),
    "source": ("I like dogs", "I like dogs"),
    "target": ("나는 개를", "나는 개를"),
    "next": ("좋아한다", "좋아한다"),
}
STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
.small { font-size: 11px; fill: #59636e; }
.word { font-weight: 600; }
rect { fill: #ddf4ff; stroke: #0969da; }
.norm { fill: #fff8c5; stroke: #9a6700; }
.ends { fill: #f6f8fa; stroke: #59636e; }
.frame { fill: none; stroke: #59636e; stroke-dasharray: 4 4; }
path { fill: none; stroke: #59636e; stroke-width: 1.5; marker-end: url(#arrow); }
marker path { fill: #59636e; stroke: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .small { fill: #9198a1; }
  rect { fill: #0c2d4d; stroke: #4493f8; }
  .norm { fill: #3b2e00; stroke: #d29922; }
  .ends { fill: #212830; stroke: #9198a1; }
  .frame, path { stroke: #9198a1; }
  .frame { fill: none; }
  marker path { fill: #9198a1; }
}
"""
BOTTOM = 8 * (BOX + GAP) + 26
"""Lower edge of the lowest box of both stacks."""


def top(level: int) -> int:
    """Return the upper edge of the box at a level of a stack; level 0 is the lowest."""
    return BOTTOM - BOX - level * (BOX + GAP)


def drawing(language: str) -> str:
    """Draw the picture in one language as SVG."""
    which = list(FILES).index(language)
    word = {name: escape(texts[which]) for name, texts in WORDS.items()}
    parts = []
    for left, boxes in STACKS.items():
        middle = left + WIDTH // 2
        inside = [i for i in range(1, len(boxes)) if boxes[i][2]]
        frame = top(inside[-1]) - 6
        parts.append(
            f'<rect class="frame" x="{left - 12}" y="{frame}" width="{WIDTH + 24}" '
            f'height="{top(1) + BOX + 6 - frame}" rx="10"/>'
        )
        for level, box in enumerate(boxes):
            y = top(level)
            kind = {"000 001 002": "norm", "003": "ends", "": "ends"}.get(box[2], "layer")
            parts += [
                f'<path d="M{middle} {y + BOX + GAP}V{y + BOX + 2}"/>',
                f'<rect class="{kind}" x="{left}" y="{y}" width="{WIDTH}" height="{BOX}" rx="6"/>',
                f'<text x="{middle}" y="{y + 20}">{escape(box[which])}</text>',
                f'<text class="small" x="{middle}" y="{y + 36}">{box[2]}</text>',
            ]
    encoder, decoder = (left + WIDTH // 2 for left in STACKS)
    memory, out, cross = top(4) - 30, top(7), top(3) + BOX // 2
    turn = (ENCODER + WIDTH + DECODER) // 2
    parts += [
        f'<path d="M{encoder} {top(4)}V{memory}H{turn}V{cross}H{DECODER - 2}"/>',
        f'<path d="M{decoder} {out}V{out - GAP}"/>',
        f'<text class="small" x="{ENCODER + 40}" y="{top(4) - 14}">{word["encoder"]}</text>',
        f'<text class="small" x="{DECODER - 62}" y="{top(6) + 10}">{word["decoder"]}</text>',
        *(
            f'<text class="word" x="{x}" y="{y}">{word[name]}</text>'
            for x, y, name in (
                (encoder, BOTTOM + GAP + 16, "source"),
                (decoder, BOTTOM + GAP + 16, "target"),
                (decoder, out - GAP - 6, "next"),
            )
        ),
    ]
    height = BOTTOM + GAP + 28
    body = "\n".join(parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 {height}" width="660" role="img">
<title>{word["title"]}</title>
<style>
{STYLE}</style>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>
{body}
</svg>
"""


def main(arguments: Sequence[str]) -> int:
    """Write both pictures, or check them; return the exit code."""
    return write({path: drawing(language) for language, path in FILES.items()}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
