"""Registry of tasks: `TASKS` has the class of each model by its `model_type`."""

from typing import Any

from pellucid.core.errors import UserError
from pellucid.core.parts import Registry
from pellucid.tasks.causal_lm import CausalLMTask
from pellucid.tasks.classifier import ClassifierTask
from pellucid.tasks.masked_lm import MaskedLMTask
from pellucid.tasks.seq2seq import Seq2SeqTask
from pellucid.tasks.task import Task

TASKS: Registry[type[Task]] = Registry(
    {task.name: task for task in (Seq2SeqTask, CausalLMTask, MaskedLMTask, ClassifierTask)}
)


def task_of(thing: Any) -> type[Task]:
    """Return the task class of a model, of a task, or of a model's config.

    Raises `UserError` for anything else.

    >>> from pellucid.models.config import CausalLMConfig
    >>> task_of(CausalLMConfig()).kind
    'continue'
    """
    model = getattr(thing, "model", thing)
    config = getattr(model, "config", model)
    name = getattr(config, "model_type", "")
    if name not in TASKS:
        raise UserError(
            f"there is no task for a {type(thing).__name__}; expected a model or a configuration "
            f"of {', '.join(TASKS)}"
        )
    return TASKS[name]
