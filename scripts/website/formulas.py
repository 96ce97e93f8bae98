"""Convert the formulas of `pellucid explain` to MathML when the site is built.

A formula is written once, on one line, as the terminal prints it: `A / B` with spaces is a
fraction, `x_i` has a subscript, `√(…)` is a root; two spaces separate clauses. The site then needs
no script and no network.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹ᵀᵗ′", "0123456789Tt′", strict=True))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
HAT = "\u0302"
CLOSING = {"(": ")", "[": "]", "{": "}"}
TOKEN = re.compile(
    rf"""
    (?P<space>\s+)
    | (?P<label>[A-Za-z][\w-]*:(?=\s))
    | (?P<code>[A-Za-z]+_[A-Za-z]{{3,}}\w*)
    | (?P<number>\d+(?:\.\d+)?)
    | (?P<half>½)
    | (?P<name>[^\W\d_Σ{"".join(SUPERSCRIPTS)}{"".join(SUBSCRIPTS)}]{HAT}?[A-Za-z]*)
    | (?P<sub>_[A-Za-z0-9]+|[{"".join(SUBSCRIPTS)}]+)
    | (?P<sup>[{"".join(SUPERSCRIPTS)}]+|\^)
    | (?P<open>[(\[{{])
    | (?P<close>[)\]}}])
    | (?P<sign>.)
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """One token of a formula."""

    kind: str
    text: str
    spaced: bool
    """Whether a space precedes it."""


class Part(NamedTuple):
    """A piece of MathML, and how it combines with its neighbours."""

    kind: str
    """"factor", "sum" (a sum sign, which takes the parts after it), "over" (the bar of a fraction)
    or "operator"."""
    xml: str
    inside: str = ""
    """Content without parentheses of a factor that is a single group."""
    word: bool = False
    """Whether it is a name of several letters, such as log, which needs space around it."""


def clauses(formula: str) -> list[str]:
    """Split a formula at two or more spaces; each clause may have its own line.

    >>> clauses("A = s · Q Kᵀ,  s = 1 / √D")
    ['A = s · Q Kᵀ,', 's = 1 / √D']
    """
    return re.split(r"\s{2,}", formula.strip())


def mathml(clause: str) -> str:
    """Convert one clause to a `<math>` element.

    Raises `ValueError` if it cannot be parsed.

    >>> print(mathml("y_t / 2"))
    <math alttext="y_t / 2" display="block"><mfrac><msub><mi>y</mi><mi>t</mi></msub><mn>2</mn>\
</mfrac></math>
    """
    tokens = list(_tokens(clause))
    reader = _Reader(tokens)
    xml = reader.read("")
    if reader.at != len(tokens):
        raise ValueError(f"{clause!r} has a {tokens[reader.at].text!r} that nothing opens")
    return f'<math alttext="{escape(clause)}" display="block">{xml}</math>'


def _tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a clause. Raises `ValueError` for an unknown character."""
    spaced = False
    for match in TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "space":
            spaced = True
        else:
            yield Token(kind, match.group(), spaced)
            spaced = False


class _Reader:
    """Parses tokens from left to right."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at = tokens, 0

    def _next(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def read(self, closing: str, script: bool = False) -> str:
        """Parse up to a closing bracket; in a script `/` stays a slash."""
        parts: list[Part] = []
        while (token := self._next()) and token.text != closing:
            if token.kind == "close":
                break
            parts.append(self._part(script))
        if closing and self._next() is None:
            raise ValueError(f"a {closing!r} is missing")
        return _side_by_side(_with_fractions(parts))

    def _part(self, script: bool) -> Part:
        """Parse one part."""
        token = self.tokens[self.at]
        self.at += 1
        match token.kind:
            case "label":
                return Part("operator", f"<mtext>{escape(token.text)}&nbsp;</mtext>")
            case "sign":
                return self._sign(token, script)
        inside = ""
        if token.kind == "open":
            inside, xml = self._group(token)
        else:
            xml = _atom(token)
            following = self._next()
            called = following and following.kind == "open" and not following.spaced
            if token.kind in ("name", "code") and called and following:
                self.at += 1
                return self._scripts(
                    Part("factor", f"<mrow>{xml}{self._group(following)[1]}</mrow>")
                )
        word = re.fullmatch("<mi>[A-Za-z]{2,}</mi>", xml) is not None
        return self._scripts(Part("factor", xml, inside, word))

    def _group(self, opening: Token) -> tuple[str, str]:
        """Parse a bracket after its opening; return its content without and with brackets."""
        inside = self.read(CLOSING[opening.text])
        self.at += 1
        grows = "true" if re.search("<mfrac>|<msqrt>|<munder>", inside) else "false"
        open_, close = (
            f'<mo stretchy="{grows}">{bracket}</mo>'
            for bracket in (opening.text, CLOSING[opening.text])
        )
        return inside, f"<mrow>{open_}{inside}{close}</mrow>"

    def _sign(self, token: Token, script: bool) -> Part:
        """Parse a sign such as √, ∂ or an operator."""
        following = self._next()
        if token.text == "Σ":
            return self._sum()
        if token.text == "√":
            operand = self._part(script)
            return Part("factor", f"<msqrt>{operand.inside or operand.xml}</msqrt>")
        if token.text == "∂" and following:
            return Part("factor", f"<mrow><mo>∂</mo>{self._part(script).xml}</mrow>")
        tight = following is not None and not following.spaced and not token.spaced
        if token.text == "/" and not script:
            return Part("tight over" if tight else "over", "<mo>/</mo>")
        if token.text == "·":
            return Part("tight" if tight else "operator", "<mo>·</mo>")
        if token.text == ",":
            return Part("operator", '<mo separator="true">,</mo>')
        return Part("operator", f"<mo>{escape(token.text)}</mo>")

    def _sum(self) -> Part:
        """Parse a sum sign with its index."""
        following = self._next()
        if following and following.kind == "sub":
            self.at += 1
            return Part("sum", f"<munder><mo>∑</mo>{_index(following)}</munder>")
        return Part("sum", "<mo>∑</mo>")

    def _scripts(self, part: Part) -> Part:
        """Add the subscript and superscript that follow, and further groups, as in `E[x]²`."""
        below, above = "", ""
        while (token := self._next()) and token.kind in ("sub", "sup") and not token.spaced:
            self.at += 1
            if token.kind == "sub":
                below = _index(token)
            elif token.text == "^":
                opening = self.tokens[self.at]
                self.at += 1
                above = f"<mrow>{self.read(CLOSING[opening.text], script=True)}</mrow>"
                self.at += 1
            else:
                letters = "".join(SUPERSCRIPTS[letter] for letter in token.text)
                kind = "mn" if letters.isdigit() else "mo" if letters == "′" else "mi"
                above += f"<{kind}>{letters}</{kind}>"
        xml = part.xml if part.xml.count("<mi>") + part.xml.count("<mn>") == 1 else _row(part.xml)
        if below and above:
            part = part._replace(xml=f"<msubsup>{xml}{below}{_row(above)}</msubsup>", inside="")
        elif below:
            part = part._replace(xml=f"<msub>{xml}{below}</msub>", inside="")
        elif above:
            part = part._replace(xml=f"<msup>{xml}{_row(above)}</msup>", inside="")
        following = self._next()
        if (below or above) and following and following.kind == "open" and not following.spaced:
            self.at += 1
            return Part("factor", f"<mrow>{part.xml}{self._group(following)[1]}</mrow>")
        return part


def _side_by_side(parts: list[Part]) -> str:
    """Put parts in a row, with a gap between a word and the factor next to it."""
    xml = parts[0].xml if parts else ""
    for before, part in itertools.pairwise(parts):
        words = before.kind == part.kind == "factor" and (before.word or part.word)
        gap = '<mspace width="0.22em"/>' if words else ""
        xml += gap + part.xml
    return xml


def _row(xml: str) -> str:
    """Wrap MathML in `<mrow>` unless it is one already."""
    return xml if xml.startswith("<mrow>") and xml.count("<mrow>") == 1 else f"<mrow>{xml}</mrow>"


def _atom(token: Token) -> str:
    """Format a number or a name: a single letter is italic, `dx` is d and x, a word upright."""
    if token.kind == "number":
        return f"<mn>{token.text}</mn>"
    if token.kind == "half":
        return "<mfrac><mn>1</mn><mn>2</mn></mfrac>"
    if token.kind == "code":
        return f"<mtext>{token.text}</mtext>"
    hat, letters = HAT in token.text, token.text.replace(HAT, "")
    if hat:
        return f'<mover accent="true"><mi>{letters}</mi><mo>^</mo></mover>'
    if len(letters) == 2 and letters[0] == "d":
        return f"<mrow><mi>d</mi><mi>{letters[1]}</mi></mrow>"
    return f"<mi>{'∞' if letters == 'inf' else letters}</mi>"


def _index(token: Token) -> str:
    """Format a subscript."""
    letters = "".join(SUBSCRIPTS.get(letter, letter) for letter in token.text.removeprefix("_"))
    if letters.isdigit():
        return f"<mn>{letters}</mn>"
    single = "".join(f"<mi>{letter}</mi>" for letter in letters)
    return single if len(letters) == 1 else f"<mrow>{single}</mrow>"


def _with_fractions(parts: list[Part]) -> list[Part]:
    """Join factors around tight dots and slashes, then make fractions of ` / `."""
    parts = _joined(parts)
    while any(part.kind == "over" for part in parts):
        bar = next(i for i, part in enumerate(parts) if part.kind == "over")
        first = bar
        while first and parts[first - 1].kind in ("factor", "sum"):
            first -= 1
        end = bar + 1
        while end < len(parts) and parts[end].kind == "sum":
            end += 1
        above, below = parts[first:bar], parts[bar + 1 : end + 1]
        if not above or not below:
            raise ValueError("a fraction has nothing above or below its bar")
        parts[first : end + 1] = [_fraction(above, below)]
    return parts


def _joined(parts: list[Part]) -> list[Part]:
    """Join the parts around tight dots and slashes."""
    joined: list[Part] = []
    for part in parts:
        bar = joined.pop() if joined and joined[-1].kind.startswith("tight") else None
        if bar is None:
            joined.append(part)
        elif bar.kind == "tight over":
            joined.append(_fraction([joined.pop()], [part]))
        else:
            joined.append(Part("factor", f"<mrow>{joined.pop().xml}{bar.xml}{part.xml}</mrow>"))
    return joined


def _fraction(above: list[Part], below: list[Part]) -> Part:
    """Make a fraction of the parts above and below its bar."""
    sides = []
    for side in (above, below):
        alone = side[0].inside if len(side) == 1 else ""
        content = alone or _side_by_side(side)
        sides.append(content if len(side) == 1 and not alone else f"<mrow>{content}</mrow>")
    xml = f"<mfrac>{sides[0]}{sides[1]}</mfrac>"
    return Part("factor", xml)
