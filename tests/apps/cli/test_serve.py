"""`pellucid serve`: what its options become, and which are refused."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from tests.small import write_model

from pellucid.apps.cli.main import main
from pellucid.apps.serve.service import Service


@pytest.mark.parametrize(("host", "guarded"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_the_options_reach_the_service(
    host: str,
    guarded: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    services: list[Service] = []

    def run(app: Any, service: Service, bound: socket.socket, started: Any) -> int:
        with bound:
            assert bound.getsockname()[0] == host
        services.append(service)
        return 0

    monkeypatch.setattr("pellucid.apps.serve.server.serve", run)
    monkeypatch.setattr("pellucid.apps.cli.serve._log_requests", lambda: None)  # it would stay on
    (tmp_path / "keys").write_text("a key\n", encoding="utf-8")
    model = write_model(tmp_path / "small")
    options = ("--max-tokens", "7", "--max-seconds", "3", "--max-waiting", "5", "--rows", "1")
    keys = ("--api-keys", str(tmp_path / "keys"))
    assert main(["serve", str(model), "--host", host, "--port", "0", *keys, *options]) == 0
    assert "every request was answered" in capsys.readouterr().out
    (service,) = services
    assert list(service.models) == ["small"]
    assert {batcher.rows for batcher in service.models["small"].batchers} == {1}
    assert list(service.keys) == ["a key"]
    # A server for this machine alone answers to its own names: another site may have given it one.
    assert ("localhost" in service.hosts) == bool(service.hosts) == guarded
    assert service.worker.most_waiting == 5
    limits = service.limits
    assert (limits.tokens, limits.seconds, limits.waiting) == (7, 3.0, 5)


@pytest.mark.parametrize("option", ["--rows", "--max-tokens", "--max-seconds", "--max-waiting"])
def test_a_limit_that_lets_nothing_through_is_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "never-read", option, "0"]) == 2
    assert "--max-waiting are at least 1, --max-seconds above 0" in capsys.readouterr().err
