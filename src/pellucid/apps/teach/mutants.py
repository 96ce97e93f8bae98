"""Generate unlisted mistakes: small changes of a right solution, and its terms.

The solution is parsed into a syntax tree. `mutants` changes one node at a time (and some repeated
code everywhere), as people do by mistake: a part left out, another sign, axis or name, a number off
by one. `terms` splits a result into the terms of its sum, so that least squares can find the factor
of each in a wrong answer.
"""

import ast
from collections.abc import Iterator
from typing import Any

EVERYWHERE = [("axis=-1", "axis=0"), ("axis=-1, keepdims=True", "keepdims=True"), ("mean(", "sum(")]
"""Mistakes that people repeat everywhere in a body: right code, wrong code."""

NO_ARRAYS = {"np", "N", "L", "E", "bool", "len"}
"""Names in solutions that are never put in place of an array."""

NEIGHBOURS = {"sum": ("mean", "max"), "mean": ("sum", "max"), "max": ("sum", "mean")}
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "{a}; {b}; {a} - {b}; {b} - {a}; {a} * {b}",
    ast.Sub: "{a}; {b}; {a} + {b}; {b} - {a}; {a} * {b}",
    ast.Mult: "{a}; {b}; {a} / {b}; {code} * {b}; {code} * (1 - {b}); {code} / {b}; "
    "{code} / len({a}); {left} * {b}; {a} * {right}",
    ast.Div: "{a}; {b}; {a} * {b}; {code} * {b}; {code} * (1 - {b}); {code} / {b}; "
    "{code} / len({a}); {left} / {b}; {a} / {right}",
    ast.MatMult: "{a}; {b}; {b} @ {a}; {a}.T @ {b}; {a} @ {b}.T; ({code}).T; {a} * {b}; "
    "({code}) / len({b}); {a}[:, 1:] @ {b}[1:]; {a}[:, :-1] @ {b}[:-1]; {a}[:, -1:] @ {b}[-1:]",
    ast.Pow: "{a}; {b}; {a} ** 3; {a} * 2; np.abs({a})",
}
"""Common mistakes in `left operator right`; {a} and {b} are the two operands in brackets."""


def mutants(body: str) -> Iterator[tuple[str, str, str]]:
    """Yield (old code, new code, changed body) for small changes of a body.

    The first ones replace repeated code of `EVERYWHERE`; the others each change a single node. Old
    and new code are those of the node; where it is a number, they are the whole line. No expression
    of the body may go over the end of a line.

    >>> [(old, new) for old, new, _ in mutants("return a - b")][:3]
    [('a - b', 'a'), ('a - b', 'b'), ('a - b', 'a + b')]
    """
    for old, new in EVERYWHERE:
        if body.count(old) > 1:
            yield old, new, body.replace(old, new)
    nodes, lines = list(ast.walk(ast.parse(body))), body.splitlines(keepends=True)
    names = sorted({node.id for node in nodes if isinstance(node, ast.Name)} - NO_ARRAYS)
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    for node in nodes:
        if not isinstance(node, ast.expr) or node in functions:
            continue
        n, old = node.lineno - 1, ast.unparse(node)
        for new in _variants(node, names):
            line = f"{lines[n][: node.col_offset]}({new}){lines[n][node.end_col_offset :]}"
            code = old, new
            if isinstance(node, ast.Constant):  # a number alone says little
                code = plain(lines[n].strip()), plain(line.strip())
            yield *code, "".join([*lines[:n], line, *lines[n + 1 :]])


def _variants(node: ast.expr, names: list[str]) -> list[str]:
    """List the expressions that people write by mistake in place of an expression.

    node: the expression. names: all names in the body, to confuse it with.
    """
    code = ast.unparse(node)
    written: list[str] = []
    functions = [each for each in names if each.endswith("backward")]
    arrays = [each for each in names if each not in functions]
    match node:
        case ast.BinOp(left, operator, right):
            parts = {"left": ast.unparse(left), "right": ast.unparse(right), "code": code}
            parts |= {"a": f"({parts['left']})", "b": f"({parts['right']})"}
            written += OPERATORS.get(type(operator), "").format(**parts).split("; ")
            written += [*arrays, *(f"({code}) * {each}" for each in arrays)]
        case ast.Attribute(value, "T"):
            written += [ast.unparse(value)]
        case ast.Call(ast.Name(name), [argument]):
            written += [ast.unparse(argument), f"{name}({code})"]
            written += [code.replace(name, each, 1) for each in functions]
        case ast.Call(ast.Attribute(value, name)) if name in NEIGHBOURS:
            of, cut = _in(ast.unparse(value)), "..., " if "axis=-1" in code else ""
            written += [code.replace(f".{name}(", f".{each}(") for each in NEIGHBOURS[name]]
            written += [code.replace(of, f"{of}[{cut}{part}]", 1) for part in (":-1", "1:", "-1:")]
            written += [of, f"{of}.{name}()", code.replace("axis=-1", "axis=0")]
            written += [code.replace("axis=0", "axis=-1"), code.replace(", keepdims=True", "")]
        case ast.Call(ast.Attribute(ast.Name("np")), arguments, []):
            written += map(ast.unparse, arguments[:1])
        case ast.Compare(left, _, [right]):
            a, b = ast.unparse(left), ast.unparse(right)
            written += [f"{a} < {b}", f"np.where({code}, 1, 0.01)", f"np.where({code}, 1, -1)"]
        case ast.Name(name, ast.Load()) if name in names:
            written += [*arrays, f"{name}.T", f"{name} ** 2", f"(1 - {name})"]
            written += [f"np.maximum({name}, 0)", f"np.ones_like({name})"]
        case ast.Constant(int() | float() as n) if not isinstance(n, bool):
            written += [*map(str, (n + 1, n - 1, 2 * n, n / 2, -n)), *arrays]
    return [each for each in dict.fromkeys(map(plain, written)) if each not in ("", code)]


def plain(code: str) -> str:
    """Return code in a standard form, without needless brackets."""
    return ast.unparse(ast.parse(code))


def terms(body: str) -> list[list[str]]:
    """Split each result of a solution into the terms of its sum.

    Return a list of expressions for each result, without their signs.

    >>> terms("row = g.sum()\\nreturn p * (g - row) / 3")
    [['p * g / 3', 'p * row / 3']]
    """
    statements: list[Any] = ast.parse(body).body
    assigned = {
        ast.unparse(one.targets[0]): one.value for one in statements if isinstance(one, ast.Assign)
    }
    value = statements[-1].value
    results = value.elts if isinstance(value, ast.Tuple) else [value]
    return [_expanded(assigned.get(ast.unparse(each), each)) for each in results]


def _expanded(node: ast.expr) -> list[str]:
    """Expand an expression into the terms of its sum.

    It expands sums, products of sums, and quotients; signs are dropped.
    """
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            return _expanded(left) + _expanded(right)
        case ast.BinOp(left, ast.Mult(), right):
            return [f"{_in(a)} * {_in(b)}" for a in _expanded(left) for b in _expanded(right)]
        case ast.BinOp(left, ast.Div(), right):
            return [f"{_in(a)} / {_in(ast.unparse(right))}" for a in _expanded(left)]
    return [ast.unparse(node)]


def _in(code: str) -> str:
    """Put code in brackets if it would need them as a factor of a product."""
    tree = ast.parse(code, mode="eval").body
    product = isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult | ast.Div)
    return code if product or not isinstance(tree, ast.BinOp | ast.Compare) else f"({code})"
