"""Formulas as MathML: what becomes a fraction, a root, a script; every topic's formula is read."""

from __future__ import annotations

import re
import unicodedata
from xml.etree import ElementTree

import pytest
from formulas import clauses, mathml

from pellucid.apps.teach.topic import TOPICS, read

FORMULAS = [
    pytest.param(text, id=f"{name}: {text}")
    for name in TOPICS
    for block in read(name, "en")
    if block.kind in ("formula", "step")
    for text in block.text.split("\n")
]


def tree(clause: str) -> ElementTree.Element:
    return ElementTree.fromstring(mathml(clause).replace("&nbsp;", " "))


def shape(element: ElementTree.Element) -> str:
    """Return an element as text: its children in order, rows without brackets."""
    inner = " ".join(shape(child) for child in element) or (element.text or "").strip()
    return (
        inner
        if element.tag in ("math", "mrow", "mi", "mn", "mo")
        else f"{element.tag[1:]}({inner})"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 / √D", "frac(1 sqrt(D))"),
        ("Q Kᵀ / √D", "frac(Q sup(K T) sqrt(D))"),
        ("γ ⊙ (x − μ) / √(σ² + ε)", "γ ⊙ frac(x − μ sqrt(sup(σ 2) + ε))"),
        ("exp(x_j) / Σ_k exp(x_k)", "frac(exp ( sub(x j) ) under(∑ k) exp ( sub(x k) ))"),
        ("q·k / √d_k", "frac(q · k sqrt(sub(d k)))"),
        ("lr · (m / b) / c", "lr · frac(frac(m b) c)"),
        ("lr m̂ / c", "frac(lr space() over(m ^) c)"),
        ("dy/dx", "frac(d y d x)"),
        ("10000^(−2i/E)", "sup(10000 − 2 i / E)"),
        ("A′_ls", "subsup(A l s ′)"),
        ("q_i²", "subsup(q i 2)"),
        ("dV", "d V"),
        ("∂p_j / ∂x_k", "frac(∂ sub(p j) ∂ sub(x k))"),
        ("−inf", "− ∞"),
        ("tanh: y = t", "text(tanh:) y = t"),
        ("sublayer_backward(dz)", "text(sublayer_backward) ( d z )"),
    ],
)  # fmt: skip
def test_a_formula_is_read_as_mathematicians_read_it(text: str, expected: str) -> None:
    assert shape(tree(text)) == expected


@pytest.mark.parametrize("text", ["(x", "x)", "/ 2", "x /"])
def test_a_formula_that_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"missing|opens|fraction"):
        mathml(text)


def letters(text: str) -> list[str]:
    """Return the letters and digits, scripts as ordinary ones, without sums and infinities."""
    plain = unicodedata.normalize("NFKC", re.sub("inf|Σ", "", text))
    return sorted(letter for letter in plain if letter.isalnum())


@pytest.mark.parametrize("text", FORMULAS)
def test_no_letter_of_a_topics_formula_is_lost(text: str) -> None:
    assert letters(
        "".join("".join(tree(clause).itertext()) for clause in clauses(text))
    ) == letters(text)


@pytest.mark.parametrize("text", FORMULAS)
def test_fractions_scripts_and_roots_have_as_many_parts_as_they_need(text: str) -> None:
    needs = {"mfrac": 2, "msub": 2, "msup": 2, "msubsup": 3, "munder": 2, "mover": 2}
    for clause in clauses(text):
        for element in tree(clause).iter():
            assert len(element) == needs.get(element.tag, len(element)), element.tag
