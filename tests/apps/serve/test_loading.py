"""Models are loaded, and have answered, before a request waits for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.apps.serve.servers import PIPELINES

from pellucid.apps.serve.batcher import Batcher
from pellucid.apps.serve.models import load_models, named_folders
from pellucid.core.errors import UsageError
from pellucid.tasks import MaskedLMTask
from pellucid.tasks.folder import save_model


def test_a_model_has_answered_before_it_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {name: tmp_path / name for name in ("chat", "small-de-en", "bert")}
    for name, folder in folders.items():
        save_model(folder, PIPELINES[name], "")
    answered: list[Any] = []
    step, guesses = Batcher.round, MaskedLMTask.guesses

    def noted_step(batcher: Batcher) -> int:
        answered.append(batcher)
        return step(batcher)

    def noted_guesses(pipeline: MaskedLMTask, *arguments: Any) -> Any:
        answered.append(pipeline)
        return guesses(pipeline, *arguments)

    monkeypatch.setattr(Batcher, "round", noted_step)
    monkeypatch.setattr(MaskedLMTask, "guesses", noted_guesses)
    models = load_models(folders)
    assert {id(one) for one in answered} == {
        id(next(iter(served.batchers), served.pipeline)) for served in models.values()
    }
    assert all(batcher.idle for served in models.values() for batcher in served.batchers)


@pytest.mark.parametrize("argument", ["=x", "x=", "/"])
def test_a_model_has_a_name_and_a_folder(argument: str) -> None:
    with pytest.raises(UsageError, match=f"expected FOLDER or NAME=FOLDER, got '{argument}'"):
        named_folders([argument])
