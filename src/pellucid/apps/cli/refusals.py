"""Convert tyro's error boxes for wrong arguments to one-line messages."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from pellucid.core.settings import nearest
from pellucid.tasks.generation import ALIASES, PEERS


def refusal(box: str, prog: str, options: Sequence[str]) -> str | None:
    """Convert an error box of tyro to one line; None if it is of an unknown kind.

    Args:
        box: Text that tyro printed.
        prog: The command, such as "pellucid generate".
        options: How each of its options is typed.

    >>> refusal("| Unrecognized options: --bem, 3 |", "pellucid generate", ["--beam INT"])
    'no option --bem (did you mean --beam?); see pellucid generate --help'
    """
    plain = re.sub(r"^[│| ] |[│|] *$|[─╭╮╰╯]|-{5,}", "", box, flags=re.MULTILINE)
    error, _, _ = plain.partition("For full")
    text, see = " ".join(error.split()), f"see {prog} --help"
    flags = {typed.split()[0].rstrip(","): typed for typed in options}
    if found := re.search(r"Unrecognized options: (.*?)(?= Perhaps you meant|$)", text):
        words = found[1].split(", ")
        name = next((word for word in words if word.startswith("-")), "").partition("=")[0]
        if not name:
            return f"{' '.join(words)}: more than this command takes; {see}"
        return f"no option {name}{_close(name, flags)}; {see}"
    if found := re.search(
        r"invalid choice '(.*?)' for argument '(.*?)'. Expected one of (.*)", text
    ):
        choices = [choice for choice in re.findall("'(.*?)'", found[3]) if choice != "None"]
        return f"{found[2]} must be one of {', '.join(choices)}; got {found[1]!r}"
    if found := re.search(r"Error parsing (.*?): (.*?)(?= Argument helptext|$)", text):
        got = re.search(r"^(?:invalid literal|could not convert).*: ('.*')$", found[2])
        got = got or re.search(r"^no type matching .* instantiated from \[('.*?)\]", found[2])
        reason = f"got {got[1]}" if got else found[2]
        return f"expected {flags.get(found[1], found[1])}, {reason}; {see}"
    if found := re.search(r"Missing value for argument '(.*?)'", text):
        return f"{found[1]} needs a value; {see}"
    if "Missing from" in text:
        lacking = re.findall(r"^ {4}(--\S+|[A-Z]\S*)", error, re.MULTILINE)
        return f"{prog} needs {', '.join(flags.get(name, name) for name in lacking)}; {see}"
    return None


def _close(name: str, flags: Iterable[str]) -> str:
    """Return a "did you mean" hint for a wrong flag.

    The last part of its name counts first.

    >>> _close("--epochs", ["--data.epoch-size", "--training.epochs"])
    ' (did you mean --training.epochs?)'
    >>> _close("--num-beams", ["--beam"])  # as transformers calls it
    ' (did you mean --beam?)'
    >>> _close("--data.test", ["--data", "--beam"])
    ' (did you mean --data?)'
    """
    flags = list(flags)
    if (whole := name.partition(".")[0]) != name and whole in flags:
        return f" (did you mean {whole}?)"
    last = {flag.rpartition(".")[2].strip("-"): flag for flag in flags}
    asked = name.rpartition(".")[2].strip("-")
    if ours := (PEERS | ALIASES).get(asked.replace("-", "_"), "").replace("_", "-"):
        return f" (did you mean {last[ours]}?)" if ours in last else ""
    found = get_close_matches(asked, last, n=1, cutoff=0.7)
    return f" (did you mean {last[found[0]]}?)" if found else nearest(name, last.values())
