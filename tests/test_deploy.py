"""deploy/ fits the server: paths, ports, users and times; the image's steps are run by a script."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.check_deploy import context, faults, ignored, stages, value

from badges import released

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text(encoding="utf-8")))


def test_the_dockerfile_keeps_the_usual_rules() -> None:
    assert faults(DOCKERFILE) == []
    wrong = DOCKERFILE.replace("USER 10001:10001", "USER root").replace("-slim-bookworm", "", 1)
    wrong = wrong.replace(":3.12 AS", " AS").replace("--no-cache-dir", "").replace("HEALTH", "# ")
    assert len(faults(wrong)) == 4


def test_the_builder_gets_the_package_and_nothing_else() -> None:
    sent = context()
    copied = {
        source
        for step in stages(DOCKERFILE)[0]
        if step.name == "COPY"
        for source in step.rest.split()[:-1]
    }
    assert all(any(path.startswith(source) for path in sent) for source in copied)
    assert all(any(path.startswith(source) for source in copied) for path in sent)
    assert "src/pellucid/apps/serve/page.html" in sent
    assert ignored("src/pellucid/__pycache__/a.pyc", ["*", "!src", "**/__pycache__"])


def test_without_git_the_builder_gets_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = context()
    monkeypatch.setenv("PATH", "")
    assert sorted(context()) == sorted(sent)


def test_the_image_runs_the_command_as_no_root_and_knows_its_health() -> None:
    last = stages(DOCKERFILE)[-1]
    entry = json.loads(value(last, "ENTRYPOINT"))
    assert entry[:2] == ["pellucid", "serve"]
    assert entry[entry.index("--port") + 1] == value(last, "EXPOSE") == "8000"
    assert ":8000/health" in value(last, "HEALTHCHECK")


def test_compose_serves_on_this_machine_alone_and_cannot_write() -> None:
    (file,) = documents("compose.yaml")
    service = file["services"]["pellucid"]
    assert (
        ROOT / "deploy" / service["build"]["context"] / service["build"]["dockerfile"]
    ).is_file()
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert service["read_only"]
    assert int(service["stop_grace_period"][:-1]) > 60 + 5
    assert all(re.fullmatch(r"[\w-]+=/models/[\w-]+", argument) for argument in service["command"])


def test_kubernetes_probes_what_the_server_answers() -> None:
    from pellucid.apps.serve.app import ENDPOINTS
    from pellucid.apps.serve.limits import Limits

    deployment, service = documents("kubernetes.yaml")
    pod = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    assert container["image"] == f"pellucid:{released()}"
    open_paths = {endpoint.path for endpoint in ENDPOINTS if endpoint.open}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in open_paths
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["ports"][0]["containerPort"] == int(value(stages(DOCKERFILE)[-1], "EXPOSE"))
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    assert pod["spec"]["terminationGracePeriodSeconds"] > Limits().seconds + 5
    user = pod["spec"]["securityContext"]
    assert user["runAsNonRoot"]
    assert f"{user['runAsUser']}:{user['runAsGroup']}" == value(stages(DOCKERFILE)[-1], "USER")
    assert container["securityContext"]["readOnlyRootFilesystem"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
