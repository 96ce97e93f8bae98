"""A loaded model is copied, pickled, sent to processes and used in any mode: equal answers."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.small import write_model

import pellucid
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.models import CausalLM, CausalLMConfig, MaskedLM, MaskedLMConfig
from pellucid.tasks import CausalLMTask, MaskedLMTask

TEXTS = ["hello", "there he", "oh"]
SMALL: dict[str, Any] = {"d_model": 12, "num_attention_heads": 3, "ffn_dim": 7, "dropout": 0.5,
                         "num_hidden_layers": 1, "max_position_embeddings": 23}  # fmt: skip


def answers(trained: Any) -> Any:
    """All that a seq2seq or causal_lm pipeline says of the texts."""
    found = trained.generate_answers(TEXTS)
    return found, [
        trained.token_scores([([4, 5], some[0].tokens[:3])])[0].log_p.tolist() for some in found
    ]


def fillings(trained: Any) -> Any:
    """All that a masked_lm pipeline says."""
    return trained.guesses("he[MASK]lo"), trained.embed(TEXTS).tolist()


Case = tuple[Any, Callable[[Any], Any]]


@pytest.fixture(params=["seq2seq", "causal_lm", "masked_lm"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    tokens = train_tokenizer(["hello there"], "char", None, ())
    if request.param == "seq2seq":
        return pellucid.load(write_model(tmp_path / "model")), answers
    if request.param == "causal_lm":
        config = CausalLMConfig(vocab_size=tokens.vocab_size, **SMALL)
        search = SearchConfig(max_length=5)
        return CausalLMTask(CausalLM(config).eval(), tokens, tokens, search), answers
    masked = MaskedLM(MaskedLMConfig(vocab_size=tokens.vocab_size + 1, **SMALL))
    return MaskedLMTask.of(masked.eval(), [tokens]), fillings


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copied_pipeline_answers_the_same(case: Case, copied: Callable[[Any], Any]) -> None:
    trained, ask = case
    assert ask(copied(trained)) == ask(trained)


def test_a_pickled_pipeline_is_its_weights_tokenizer_and_settings(case: Case) -> None:
    trained, ask = case
    before = len(pickle.dumps(trained))
    ask(trained)  # what answering compiles is not part of it
    weights = sum(value.nbytes for value in trained.model.state_dict().values())
    assert len(pickle.dumps(trained)) == before < weights + 40_000


def test_a_model_in_memory_that_cannot_be_written_answers_the_same(case: Case) -> None:
    """As Ray hands out what it keeps for all processes of a machine."""
    trained, ask = case
    expected = ask(trained)
    for parameter in trained.model.parameters():
        parameter.data = np.frombuffer(parameter.data.tobytes(), np.float32).reshape(
            parameter.shape
        )
        assert not parameter.data.flags.writeable
    assert ask(trained) == expected


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_compiled_model_is_copied_as_it_was_compiled(
    tmp_path: Path, copied: Callable[[Any], Any]
) -> None:
    trained = pellucid.load(write_model(tmp_path / "model"))
    expected, engine = trained.generate(TEXTS), trained.decoder()
    trained.model.output.weight.data *= -1.0  # what was compiled does not follow
    assert trained.generate(TEXTS) != expected
    found = trained.generate_answers(TEXTS, decoder=lambda: copied(engine))
    assert [best[0].text for best in found] == expected


def test_answers_do_not_depend_on_the_mode(case: Case) -> None:
    """Another thread may be training the same model: its mode is no business of an answer."""
    trained, ask = case
    expected = ask(trained)
    trained.model.train()
    assert ask(trained) == expected
    with pellucid.reference():
        in_training = ask(trained)
        trained.model.eval()
        assert ask(trained) == in_training


@pytest.mark.alone
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # what is tested
def test_processes_answer_the_same(tmp_path: Path, method: str) -> None:
    trained = pellucid.load(write_model(tmp_path / "model"))
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as processes:
        found = list(processes.map(partial(type(trained).generate, trained), [TEXTS, TEXTS[::-1]]))
    assert found == [trained.generate(TEXTS), trained.generate(TEXTS[::-1])]


@pytest.mark.alone
def test_threads_answer_the_same_while_another_trains(tmp_path: Path) -> None:
    trained = pellucid.load(write_model(tmp_path / "model"))
    expected = trained.generate(TEXTS)
    weights = copy.deepcopy(trained.model.state_dict())
    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(trained.generate, TEXTS) for _ in range(12)]
        trained.model.train()
        assert all(job.result() == expected for job in jobs)
    for name, value in trained.model.state_dict().items():
        np.testing.assert_array_equal(value, weights[name])
