"""Write examples/runs.json: of the stored runs of the lab, what the articles' notebooks use.

    python scripts/article_runs.py            write it, after a study has new runs
    python scripts/article_runs.py --check    only say whether it is stale; exit with 1 if it is

results/studies has 20 MB, so neither the wheel nor the site has them. This file has the same runs
with the figures that the notebooks print and draw, to seven digits: a hosted notebook and a cell in
a browser show what the checkout shows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).absolute().parents[1]
FILE = ROOT / "examples" / "runs.json"
PROBES = {
    "activations": (),
    "article-003": None,
    "embedding-init": (),
    "exponent": (-1,),
    "heads-and-ffns": (),
    "scaling-held-out": (),
    "scaling-multi30k": (),
}
"""The studies that the notebooks read, and the probes of a run that they use; None: all."""
METRICS = ("train_loss", "best_valid_loss")


def kept(study: str, run: dict[str, Any]) -> dict[str, Any]:
    """Reduce the record of a run to the numbers that the notebooks read."""
    probes, chosen = run.get("probes", []), PROBES[study]
    if chosen is not None:
        probes = [probes[i] for i in chosen] if probes else []
    found = {
        "change": run["change"],
        "seed": run["seed"],
        "status": run["status"],
        "metrics": {name: short(run["metrics"].get(name)) for name in METRICS},
        "probes": [
            {
                "step": probe["step"],
                "attention": {
                    name: {"score_variance": short(layer["score_variance"])}
                    for name, layer in probe["attention"].items()
                    if name.startswith("decoder") and name.endswith("self_attn")
                },
            }
            for probe in probes
        ],
    }
    if study == "article-003":
        found["curve"] = {"train": short(run["curve"]["train"])}
    return found


def short(value: Any) -> Any:
    """Round floats, also those in lists, to seven significant digits; keep anything else.

    >>> short([0.123456789, None])
    [0.1234568, None]
    """
    if isinstance(value, list):
        return list(map(short, value))
    return float(f"{value:.7g}") if isinstance(value, float) else value


def written() -> str:
    """Return the text of the file: a line for each run."""
    studies = []
    for study in PROBES:
        path = ROOT / "results" / "studies" / f"{study}.jsonl"
        runs = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        lines = [
            json.dumps(kept(study, run), separators=(",", ":"))
            for run in runs
            if run["status"] == "done"
        ]
        studies.append(f'"{study}": [\n' + ",\n".join(lines) + "\n]")
    return "{\n" + ",\n".join(studies) + "\n}\n"


def main() -> int:
    """Write the file, or say whether it is stale; return the exit code."""
    text = written()
    stale = not FILE.exists() or FILE.read_text(encoding="utf-8") != text
    if "--check" in sys.argv[1:]:
        print(f"{FILE.name}: {'stale' if stale else 'up to date'}")
        return int(stale)
    FILE.write_text(text, encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)}, {len(text.encode()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
