"""A task is one class: what reads the classes finds each, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pellucid import nn
from pellucid.apps.view import attention
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.tasks import TASKS, Task, task_of
from pellucid.tasks.folder import load_model, save_model

each = pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
SMALL = {"d_model": 6, "num_attention_heads": 3, "ffn_dim": 7, "max_position_embeddings": 17}


def test_tasks_are_found_by_their_config_s_model_type() -> None:
    assert {name: task.config_class.model_type for name, task in TASKS.items()} == {
        name: name for name in TASKS
    }


@each
def test_a_task_is_known_by_config_model_and_instance(task: type[Task]) -> None:
    built = task.build(task.config_class(**SMALL), [train_tokenizer(["abc"], "char")], seed=1)
    assert isinstance(built, task)
    assert [task_of(x) for x in (built.model.config, built.model, built)] == [task] * 3


@each
def test_a_model_of_every_task_is_saved_loaded_and_drawn(task: type[Task], tmp_path: Path) -> None:
    tokenizers = [train_tokenizer(["abc"], "char"), train_tokenizer(["defgh"], "char")]
    tokenizers = tokenizers[-len(task.vocabularies) :]
    built = task.build(task.config_class(**SMALL), tokenizers, SearchConfig(), seed=1)
    built.model.eval()
    sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
    assert task.tokenizer_sizes(built.model.config) == sizes
    save_model(tmp_path / "model", built, "")
    trained = load_model(tmp_path / "model")
    assert type(trained) is task
    assert trained.model.config == built.model.config
    assert attention(trained, "abc" if len(sizes) == 2 else "def").record.maps


def test_what_has_no_task_is_refused_by_its_type() -> None:
    with pytest.raises(UserError, match="there is no task for a Linear"):
        task_of(nn.Linear(2, 3))
