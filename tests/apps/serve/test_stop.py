"""The command: its messages, and a stop that answers every accepted request."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.apps.serve.servers import running, write
from tests.small import write_model

from pellucid.apps.cli.main import main
from pellucid.apps.serve.server import listen
from pellucid.core.errors import UserError


@pytest.mark.alone
def test_sigterm_lets_every_accepted_request_be_answered(tmp_path: Path) -> None:
    folder = write(tmp_path / "endless")
    log = (tmp_path / "log").open("w+", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "pellucid", "serve", str(folder), "--port", "0",
         "--max-tokens", "4000"],
        stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        statuses: list[tuple[int, int]] = []

        def ask(n: int) -> None:
            body = {"model": "endless", "prompt": f"hello {n}", "max_tokens": 1500}
            request = Request(f"{url}/v1/completions", json.dumps(body).encode())
            with urlopen(request, timeout=120) as response:
                answer = json.loads(response.read())
                statuses.append((response.status, answer["usage"]["completion_tokens"]))

        askers = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for asker in askers:
            asker.start()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with urlopen(f"{url}/metrics", timeout=60) as response:
                if "pellucid_running_rows 8" in response.read().decode():
                    break
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        for asker in askers:
            asker.join(120)
        assert statuses == [(200, 1500)] * 8
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "every request was answered" in out
        log.seek(0)
        assert log.read().count('"/v1/completions", "status": 200') == 8
    finally:
        process.kill()
        process.communicate()
        log.close()


POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"


@pytest.mark.alone
def test_requests_sent_but_not_yet_read_when_the_server_stops_are_answered() -> None:
    with running(grace=1.0) as server:
        assert server.server.server_state.connections == set()
        body = json.dumps({"model": "chat", "prompt": "hello"}).encode()
        opened = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(20)]
        used = socket.create_connection(("127.0.0.1", server.port), 30)
        used.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while not received.endswith(b'"ok"}'):
            received += used.recv(4096)
        assert len(server.server.server_state.connections) == 21
        loop = next(iter(server.server.servers)).get_loop()
        busy = threading.Event()
        loop.call_soon_threadsafe(lambda: (busy.set(), time.sleep(1)))
        assert busy.wait(10)
        queued = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(20)]
        for one in (*opened, used, *queued[:10]):
            one.sendall(POST % (len(body), body))
        server.server.should_exit = True
        time.sleep(1.1)  # connected, and a moment later asks
        for one in queued[10:]:
            one.sendall(POST % (len(body), body))
        for one in (*opened, used, *queued):
            with one:
                assert one.recv(4096).startswith(b"HTTP/1.1 200")
    assert server.server.unanswered == 0


@pytest.mark.alone
def test_requests_that_wait_for_another_of_their_connection_are_answered_or_counted() -> None:
    def post(model: str, **more: object) -> bytes:
        body = json.dumps({"model": model, "prompt": "hello", **more}).encode()
        return POST % (len(body), body)

    with running(grace=1.0) as server:
        used = socket.create_connection(("127.0.0.1", server.port), 30)
        streamed = socket.create_connection(("127.0.0.1", server.port), 30)
        server.server.should_exit = True
        while not server.server.server_state.stopping:
            time.sleep(0.01)
        streamed.sendall(post("endless", max_tokens=1500, stream=True))
        assert b"connection: close" in streamed.recv(4096)
        streamed.sendall(post("chat"))  # after the answer that is the last
        used.sendall(post("chat") * 3)
        with used, used.makefile("rb") as answers:
            received = answers.read()
        assert received.count(b"HTTP/1.1 200") == 3
        assert received.count(b"connection: close") == 1
        with streamed, streamed.makefile("rb") as answers:
            assert answers.read().endswith(b"0\r\n\r\n")
    assert server.server.unanswered == 1


@pytest.mark.alone
def test_a_stop_that_is_forced_says_what_had_no_answer(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pellucid", "serve", str(write(tmp_path / "endless")), "--port", "0",
         "--max-tokens", "4000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        asked = {
            "model": "endless",
            "prompt": "hello",
            "max_tokens": 4000,
            "stream": True,
            "n": 40,
            "temperature": 1,
        }
        body = json.dumps(asked).encode()
        with socket.create_connection(("127.0.0.1", port), 60) as asker:
            asker.sendall(POST % (len(body), body))
            assert asker.recv(100).startswith(b"HTTP/1.1 200")
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        assert out == "stopped: 1 or more requests were not answered\n"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.alone
def test_sigterm_as_soon_as_the_server_has_said_its_address(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pellucid", "serve", str(write(tmp_path / "m")), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving m at ")
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out, errors) == (0, "stopped: every request was answered\n", "")
    finally:
        process.kill()
        process.communicate()


LOADS_FOR_EVER = """
import sys, time
from pellucid.apps.cli.main import main
from pellucid.apps.serve import models
def load(*_):
    print("loading", flush=True)
    time.sleep(600)
models.load_models = load
sys.exit(main(["serve", "model", "--port", "0"]))
"""


@pytest.mark.alone
def test_sigterm_while_models_are_loaded_ends_the_process() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOADS_FOR_EVER],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM
        assert errors == "pellucid: stopped before its models were loaded\n"
    finally:
        process.kill()
        process.communicate()


def failing(*arguments: str | Path) -> int:
    return main(["serve", *map(str, arguments)])


def test_a_port_in_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert failing(write_model(tmp_path / "m"), "--port", str(port)) == 1
    assert f"port {port} of 127.0.0.1 is in use" in capsys.readouterr().err


def test_a_wrong_command_is_one_clear_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "one" / "m")
    assert failing() == 2
    assert "which model?" in capsys.readouterr().err
    assert failing(model, write_model(tmp_path / "two" / "m")) == 2
    assert "two models are named m" in capsys.readouterr().err
    for text, says in (("\n\n", "is empty"), ("\u3000\n", "holds no key")):
        (tmp_path / "keys").write_text(text, encoding="utf-8")
        assert failing(model, "--api-keys", tmp_path / "keys", "--port", "0") == 1
        assert says in capsys.readouterr().err
    (model / "model.safetensors").write_bytes(b"damaged")
    assert failing(model, "--port", "0") == 1
    assert "model.safetensors" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert failing(model) == 1
    assert (
        "needs starlette, uvicorn, httptools, msgspec and prometheus-client: "
        in capsys.readouterr().err
    )


def test_a_port_in_use_is_not_shared_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the option that elsewhere frees a port after a stop would let two servers have it."""
    for system, wanted in (("win32", 0), ("linux", 1)):
        monkeypatch.setattr(sys, "platform", system)
        with listen("127.0.0.1", 0) as bound:
            assert bool(bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)) == wanted


@pytest.mark.parametrize("host", ["a\0b", "\udc80", "é" * 70])
def test_a_name_that_no_host_has_is_refused_in_words(host: str) -> None:
    with pytest.raises(UserError, match="cannot listen on"):
        listen(host, 0)
