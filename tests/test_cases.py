"""Cases taken from public reports: the file, and what is right (`cases/README.md` beside it)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.apps.serve.servers import Running, ask, running

import pellucid
from pellucid.tasks.folder import load_model

CASES = Path(os.environ.get("PELLUCID_CASES", Path(__file__).parents[2] / "shared" / "cases"))
SHIPPED = Path(pellucid.__file__).parent / "trained"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"no folder {CASES}")


def test_k6_a_prefix_that_ends_inside_a_token() -> None:
    trained = replace(load_model(SHIPPED / "chat-ko"), arithmetic="float32")
    for line in (CASES / "k6_prefix.tsv").read_text(encoding="utf-8").splitlines():
        text, prefix = line.split("\t")
        (free,) = trained.generate_answers([text])[0]
        (found,) = trained.generate_answers([text], prefix=prefix)[0]
        assert found.text.startswith(prefix)
        assert not free.text.startswith(prefix) or found.log_p >= free.log_p - 1e-4


def trained_on(name: str, run: Path, **settings: Any) -> Any:
    return pellucid.train(
        "gpt-ko", train=CASES / name, run=run, steps=200, data=settings,
        model={"d_model": 32, "ffn_dim": 64}, training={"minutes": None, "validate_every": 200},
        tokenizer={"kind": "char"},
    )  # fmt: skip


def test_k8_names_are_drawn_from_nothing(tmp_path: Path) -> None:
    trained = trained_on("k8_names.txt", tmp_path / "run")
    drawn = [trained.generate([""], temperature=1.0, seed=seed)[0] for seed in range(5)]
    assert all(drawn)
    assert len(set(drawn)) > 1


def test_k9_a_frequent_line_is_likely(tmp_path: Path) -> None:
    trained = trained_on("k9_frequencies.txt", tmp_path / "run", held_out=0)
    assert trained.score([("", "emma")])[0] > -0.5


@pytest.mark.parametrize("stream", [False, True])
def test_k10_a_long_text_is_read_in_blocks(tmp_path: Path, stream: bool) -> None:
    trained = trained_on("k10_paragraphs.txt", tmp_path / "run", stream=stream)
    assert len(trained.generate([""], temperature=1.0, seed=1)[0]) > 20


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


def test_k13_a_field_is_neutral_followed_or_refused(server: Running) -> None:
    for line in (CASES / "k13_requests.jsonl").read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        body = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], **fields}
        status, _, answer = ask(server, "/v1/chat/completions", body)
        if fields.keys() & {"repetition_penalty", "seed", "top_p"}:
            assert status == 200, fields
        else:
            assert (status, answer["error"]["param"]) == (400, *fields)
