"""SIGHUP: models are loaded anew while requests are answered, and none is lost."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.apps.serve.servers import PIPELINES, ask, running

from pellucid.apps.serve.batcher import Batcher
from pellucid.apps.serve.models import load_models, reload_models, serve_model
from pellucid.tasks import MaskedLMTask
from pellucid.tasks.folder import save_model

pytestmark = pytest.mark.alone

TEXT = "hello there"


def until(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def test_a_request_that_has_begun_is_answered_by_the_model_it_began_with() -> None:
    new = serve_model("chat", PIPELINES["small-de-en"])
    with running(load=lambda before: {**before, "chat": new}) as server:
        old = server.service.models["chat"]
        begun, going = threading.Event(), threading.Event()
        room = old.batchers[0].decoder.room

        def gated(*arguments: Any) -> Any:
            begun.set()
            assert going.wait(60)
            return room(*arguments)

        old.batchers[0].decoder.room = gated  # type: ignore[method-assign]
        body = {"model": "chat", "prompt": TEXT}
        answers: list[Any] = []
        asker = threading.Thread(
            target=lambda: answers.append(ask(server, "/v1/completions", body))
        )
        asker.start()
        try:
            assert begun.wait(60)
            loop = next(iter(server.server.servers)).get_loop()
            loop.call_soon_threadsafe(server.server.signalled, signal.SIGHUP)
            assert until(lambda: server.service.models["chat"] is new)
        finally:
            going.set()
            asker.join(60)
        later = ask(server, "/v1/completions", body)
    texts = [answer["choices"][0]["text"] for _, _, answer in (answers[0], later)]
    assert texts == [PIPELINES[name].generate([TEXT])[0] for name in ("chat", "small-de-en")]
    assert texts[0] != texts[1]


def test_a_model_that_cannot_be_read_stays_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the command `serve`, where an earlier test ran it here, sends these lines elsewhere
    monkeypatch.setattr(logging.getLogger("pellucid.apps.serve"), "propagate", True)
    caplog.set_level(logging.INFO, "pellucid")
    folders = {name: tmp_path / name for name in ("chat", "story")}
    for name, folder in folders.items():
        save_model(folder, PIPELINES[name], "")
    before = {name: serve_model(name, PIPELINES[name]) for name in folders}
    (folders["chat"] / "model.safetensors").write_bytes(b"damaged")
    after = reload_models(folders, before)
    assert after["chat"] is before["chat"]
    assert after["story"] is not before["story"]
    lines = [json.loads(record.message) for record in caplog.records]
    assert [line.get("not_loaded") or line["loaded"] for line in lines] == ["chat", "story"]
    assert "model.safetensors" in lines[0]["error"]


def test_sighup_loses_no_request(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    right = {name: PIPELINES[name].generate([TEXT])[0] for name in ("chat", "small-de-en")}
    save_model(folder, PIPELINES["chat"], "")
    log = (tmp_path / "log").open("w+", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "pellucid", "serve", str(folder), "--port", "0"],
        stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        answered: list[list[str]] = [[] for _ in range(4)]
        failed: list[BaseException] = []
        stop = threading.Event()

        def keep_asking(mine: list[str]) -> None:
            body = json.dumps({"model": "m", "prompt": TEXT}).encode()
            try:
                while not stop.is_set():
                    with urlopen(Request(f"{url}/v1/completions", body), timeout=60) as response:
                        mine.append(json.loads(response.read())["choices"][0]["text"])
            except BaseException as error:
                failed.append(error)

        def logged(what: str) -> bool:
            return what in (tmp_path / "log").read_text(encoding="utf-8")

        askers = [threading.Thread(target=keep_asking, args=(mine,)) for mine in answered]
        for asker in askers:
            asker.start()
        try:
            assert until(lambda: all(answered))
            save_model(folder, PIPELINES["small-de-en"], "")
            process.send_signal(signal.SIGHUP)
            assert until(lambda: all(mine[-1] == right["small-de-en"] for mine in answered))
            (folder / "model.safetensors").write_bytes(b"damaged")
            process.send_signal(signal.SIGHUP)
            assert until(lambda: logged('"not_loaded": "m"'))
            seen = [len(mine) for mine in answered]
            assert until(lambda: all(len(m) > n for m, n in zip(answered, seen, strict=True)))
        finally:
            stop.set()
            for asker in askers:
                asker.join(60)
        assert failed == []
        for mine in answered:
            change = mine.index(right["small-de-en"])
            assert mine == [right["chat"]] * change + [right["small-de-en"]] * (len(mine) - change)
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
        log.close()


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
