"""Make a trained model that comes with the package: train, store in int8, score.

    python scripts/make_models.py topics-ko
    python scripts/make_models.py g2p-en --run runs/g2p-en    # from an existing run

A model is at src/pellucid/trained/NAME. Its data's licence must allow it; NOTICE lists them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TRAINED = Path(__file__).parents[1] / "src" / "pellucid" / "trained"


def pellucid(*arguments: str | Path) -> None:
    """Run a command of Pellucid. Raises `CalledProcessError` if it fails."""
    subprocess.run([sys.executable, "-m", "pellucid", *map(str, arguments)], check=True)


def main() -> None:
    """Make the model of a recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--run", type=Path)
    asked = parser.parse_args()
    run = asked.run or Path("runs") / asked.recipe
    if not (run / "model").exists():
        pellucid("train", asked.recipe, "--run", run)
    folder = TRAINED / asked.recipe
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as whole:
        # the run with the model as it is stored, since a run knows which data was held out
        stored = Path(whole) / run.name
        shutil.copytree(run, stored, ignore=shutil.ignore_patterns("model", "checkpoints"))
        pellucid("quantize", run, stored / "model", "--weights", "int8")
        if "| score |" in (stored / "model" / "README.md").read_text(encoding="utf-8"):
            pellucid("evaluate", stored)  # a run that held out nothing has no scores
        shutil.copytree(stored / "model", folder)
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8").replace(f"runs/{run.name}", asked.recipe)
    text = text.replace(f"# {run.name}\n", f"# {asked.recipe}\n", 1)
    # a model without its run does not know which data was held out
    card.write_text(text.replace(f"pellucid evaluate {asked.recipe}\n", ""), encoding="utf-8")


if __name__ == "__main__":
    main()
