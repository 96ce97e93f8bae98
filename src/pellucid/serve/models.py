"""The models that are served, by name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pellucid.core.errors import UsageError
from pellucid.families import ModelFamily, family_of
from pellucid.families.folder import load_model
from pellucid.pipelines import Pipeline
from pellucid.serve.batcher import Batcher
from pellucid.serve.languages import language_pair


@dataclass(frozen=True, eq=False)
class Served:
    """A loaded model and what answers with it."""

    name: str
    pipeline: Any
    family: ModelFamily
    batcher: Batcher | None
    """None for a model that does not generate."""
    languages: tuple[str, str] | None
    """From which language it translates into which, if its name says so."""
    created: int = field(default_factory=lambda: int(time.time()))
    """When it was loaded, in Unix time."""

    def text(self, source: Sequence[int], answer: Sequence[int]) -> str:
        """Return the text of an answer alone, without the source in front of it."""
        whole: str = self.pipeline.written(source, answer)
        return whole[len(self.pipeline.written(source, ())) :]


def serve_model(name: str, pipeline: Pipeline, rows: int = 64) -> Served:
    """Prepare a model for serving: compile it once for all answers."""
    family = family_of(pipeline)
    trained: Any = pipeline
    batcher = Batcher(trained.speaker(), rows) if family.generates else None
    pair = language_pair(name) if family.task == "answer" else None
    return Served(name, trained, family, batcher, pair)


def named_folders(arguments: Sequence[str]) -> dict[str, Path]:
    """Return the folder of each model by its name: NAME=FOLDER, or the name of the folder.

    Raises `UsageError` for two of one name.

    >>> named_folders(["runs/chat", "de-en=runs/small/model"])
    {'chat': PosixPath('runs/chat'), 'de-en': PosixPath('runs/small/model')}
    """
    folders: dict[str, Path] = {}
    for argument in arguments:
        name, equals, rest = argument.partition("=")
        folder = Path(rest if equals else argument)
        if not equals:
            whole = folder.resolve()
            name = whole.parent.name if whole.name == "model" else whole.name
        if name in folders:
            raise UsageError(
                f"two models are named {name}: {folders[name]} and {folder}; name one of them: "
                f"OTHER={folder}"
            )
        if not name or (equals and not rest):
            raise UsageError(f"expected FOLDER or NAME=FOLDER, got {argument!r}")
        folders[name] = folder
    return folders


def load_models(
    folders: dict[str, Path], rows: int = 64, accept_changes: bool = False
) -> dict[str, Served]:
    """Load every model. Raises `UserError` naming the folder that cannot be read.

    accept_changes: take models whose files were changed after they were saved.
    """
    return {
        name: serve_model(name, load_model(folder, accept_changes), rows)
        for name, folder in folders.items()
    }
