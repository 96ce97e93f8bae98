"""Generate unlisted mistakes: small changes of a right solution, and its terms.

The solution is parsed into a syntax tree. `mutants` changes one node at a time, as people do by
mistake: a part left out, another sign, axis or name, a number off by one. `terms` splits a result
into the terms of its sum, so that least squares can find the factor of each in a wrong answer.
"""

import ast
from collections.abc import Iterator

NEIGHBOURS = {"sum": ("mean", "max"), "mean": ("sum", "max"), "max": ("sum", "mean")}
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "{a}; {b}; {a} - {b}; {b} - {a}; {a} * {b}",
    ast.Sub: "{a}; {b}; {a} + {b}; {b} - {a}; {a} * {b}",
    ast.Mult: "{a}; {b}; {a} / {b}; {code} * {b}; {code} * (1 - {b}); {code} / {b}; "
    "{code} / len({a}); {left} * {b}; {a} * {right}",
    ast.Div: "{a}; {b}; {a} * {b}; {code} * {b}; {code} * (1 - {b}); {code} / {b}; "
    "{code} / len({a}); {left} / {b}; {a} / {right}",
    ast.MatMult: "{a}; {b}; {b} @ {a}; {a}.T @ {b}; {a} @ {b}.T; ({code}).T; {a} * {b}; "
    "({code}) / len({b})",
    ast.Pow: "{a}; {b}; {a} ** 3; {a} * 2; np.abs({a})",
}
"""Common mistakes in `left operator right`; {a} and {b} are the two operands in brackets."""


def mutants(body: str) -> Iterator[tuple[str, str, str]]:
    """Yield (old code, new code, changed body) for small changes of single nodes.

    >>> [(old, new) for old, new, _ in mutants("return a - b")][:3]
    [('a - b', 'a'), ('a - b', 'b'), ('a - b', 'a + b')]
    """
    tree = ast.parse(f"def f():\n    {body.replace(chr(10), chr(10) + '    ')}")
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names, before = sorted(stored - {"np", "N", "L", "E", "bool"}), _statements(tree)
    for parent in list(ast.walk(tree)):
        for field, value in ast.iter_fields(parent):
            many = value if isinstance(value, list) else [value]
            for i, node in enumerate(many):
                if not isinstance(node, ast.expr) or field in ("targets", "func"):
                    continue
                for new in _variants(node, names):
                    changed = [*many[:i], new, *many[i + 1 :]]
                    setattr(parent, field, changed if isinstance(value, list) else new)
                    after = _statements(tree)
                    setattr(parent, field, value)
                    code = ast.unparse(node), ast.unparse(new)
                    if isinstance(node, ast.Constant):  # a number alone says little
                        code = next(
                            two for two in zip(before, after, strict=True) if len({*two}) > 1
                        )
                    yield *code, "\n".join(after)


def _statements(tree: ast.Module) -> list[str]:
    """Return the statements of the only function in a tree as code."""
    return [ast.unparse(each) for each in tree.body[0].body]  # type: ignore[attr-defined]


def _variants(node: ast.expr, names: list[str]) -> Iterator[ast.expr]:
    """Yield the expressions that people write by mistake in place of an expression."""
    code = ast.unparse(node)
    written: list[str] = []
    match node:
        case ast.BinOp(left, operator, right):
            parts = {"left": ast.unparse(left), "right": ast.unparse(right)}
            parts |= {"a": f"({parts['left']})", "b": f"({parts['right']})", "code": code}
            written += OPERATORS.get(type(operator), "").format(**parts).split("; ")
        case ast.Attribute(value, "T"):
            written += [ast.unparse(value)]
        case ast.Call(ast.Name(name), [argument]):
            written += [ast.unparse(argument), f"{name}({code})"]
            written += [code.replace(name, each, 1) for each in names if each.endswith("backward")]
        case ast.Call(ast.Attribute(value, name), arguments, keywords):
            of = _in(ast.unparse(value))
            for each in NEIGHBOURS.get(name, ()):
                written += [code.replace(f".{name}(", f".{each}(")]
            if name in NEIGHBOURS:
                written += [of, f"{of}.{name}()", code.replace("axis=-1", "axis=0")]
                written += [code.replace("axis=0", "axis=-1"), code.replace(", keepdims=True", "")]
            elif of == "np" and arguments and not keywords:
                written += [ast.unparse(arguments[0])]
        case ast.Compare(left, _, [right]):
            a, b = ast.unparse(left), ast.unparse(right)
            written += [f"{a} < {b}", f"np.where({code}, 1, 0.01)", f"np.where({code}, 1, -1)"]
        case ast.Name(name, ast.Load()) if name in names:
            written += [each for each in names if each != name and not each.endswith("backward")]
            written += [f"{name}.T", f"{name} ** 2", f"(1 - {name})", f"np.maximum({name}, 0)"]
        case ast.Constant(int() | float() as n) if not isinstance(n, bool):
            written += [str(each) for each in (n + 1, n - 1, 2 * n, n / 2, -n)]
            written += [each for each in names if not each.endswith("backward")]
    for each in filter(None, dict.fromkeys(written)):
        new = ast.parse(each, mode="eval").body
        if ast.unparse(new) != code:
            yield new


def terms(body: str) -> list[list[str]]:
    """Split each result of a solution into the terms of its sum.

    Return them as expressions.

    >>> terms("row = g.sum()\\nreturn p * (g - row) / 3")
    [['p * g / 3', 'p * row / 3']]
    """
    statements = ast.parse(f"def f():\n    {body.replace(chr(10), chr(10) + '    ')}").body[0].body  # type: ignore[attr-defined]
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
    """Put code in brackets if it needs them as a factor."""
    tree = ast.parse(code, mode="eval").body
    product = isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult | ast.Div)
    return code if product or not isinstance(tree, ast.BinOp | ast.Compare) else f"({code})"
