"""Small models behind a real server on a free port, in a thread."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np

from pellucid.apps.serve import server as serving
from pellucid.apps.serve.app import Application
from pellucid.apps.serve.limits import Limits
from pellucid.apps.serve.models import serve_model
from pellucid.apps.serve.server import Server, address, listen, serve
from pellucid.apps.serve.service import Service
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.models import (
    CausalLM,
    CausalLMConfig,
    MaskedLM,
    MaskedLMConfig,
    Seq2Seq,
    Seq2SeqConfig,
)
from pellucid.tasks import CausalLMTask, MaskedLMTask, Seq2SeqTask

T = TypeVar("T")
DEFAULT = Limits()
TOKENIZER = train_tokenizer(
    ["안녕하세요 오늘 기분이 어때요", "hello there, der Hund"] * 3, "bpe", 290
)
BPE = (TOKENIZER, TOKENIZER)
LETTERS = (
    train_tokenizer(["transparent hello".replace(" ", "")], "char"),
    train_tokenizer(["ˈtɹænspəɹənt"], "char"),
)
SHAPE = {"d_model": 24, "num_attention_heads": 3, "ffn_dim": 17}


def shaken(model: Any) -> Any:
    noise = np.random.default_rng(0)
    for parameter in model.parameters():
        shake = 0.15 * noise.standard_normal(parameter.shape)
        parameter.data = (parameter.data + shake).astype(np.float32)
    return model.eval()


def answering(
    search: SearchConfig, positions: int = 64, endless: bool = False, tokenizers: Any = BPE
) -> Seq2SeqTask:
    source, target = tokenizers
    config = Seq2SeqConfig(
        source.vocab_size, target.vocab_size, encoder_layers=1, decoder_layers=1,
        max_position_embeddings=positions, **SHAPE,
    )  # fmt: skip
    model = shaken(Seq2Seq(config))
    if endless:
        model.output.bias.data[2] = -99.0
    return Seq2SeqTask(model, source, target, search)


def continuing() -> CausalLMTask:
    config = CausalLMConfig(
        vocab_size=TOKENIZER.vocab_size, num_hidden_layers=1, max_position_embeddings=64, **SHAPE
    )
    model = shaken(CausalLM(config))
    return CausalLMTask(model, TOKENIZER, TOKENIZER, SearchConfig(max_length=20))


def filling(tokenizer: Any = TOKENIZER) -> MaskedLMTask:
    config = MaskedLMConfig(
        vocab_size=tokenizer.vocab_size + 1, num_hidden_layers=1, max_position_embeddings=64,
        **SHAPE,
    )  # fmt: skip
    return MaskedLMTask.of(shaken(MaskedLM(config)), [tokenizer])


PIPELINES: dict[str, Any] = {
    "chat": answering(SearchConfig(max_length=20)),
    "small-de-en": answering(SearchConfig(beam=3, max_length=12)),
    "story": continuing(),
    "bert": filling(),
    "sounds": answering(SearchConfig(max_length=9), tokenizers=LETTERS),
    "endless": answering(SearchConfig(max_length=4000), positions=4001, endless=True),
}


class Running(NamedTuple):
    """A server that runs."""

    url: str
    service: Service
    port: int
    server: Server


@contextmanager
def running(
    limits: Limits = DEFAULT,
    keys: tuple[str, ...] = (),
    grace: float = 0.02,
) -> Iterator[Running]:
    serving.GRACE = grace
    models = {name: serve_model(name, pipeline) for name, pipeline in PIPELINES.items()}
    service = Service(models, limits, keys, ("127.0.0.1", "localhost"))
    bound = listen("127.0.0.1", 0)
    url, port = address(bound), bound.getsockname()[1]
    servers: list[Server] = []
    thread = threading.Thread(
        target=serve, args=(Application(service), service, bound, servers.append)
    )
    thread.start()
    try:
        while not (servers and servers[0].started):
            assert thread.is_alive()
            time.sleep(0.01)
        yield Running(url, service, port, servers[0])
    finally:
        servers[0].should_exit = True
        thread.join(120)
        assert not thread.is_alive()


def ask(
    server: Running, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and body; a body that is no bytes is sent as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = Request(server.url + path, data, {"Content-Type": "application/json", **headers})
    try:
        response = urlopen(request, timeout=60)
    except HTTPError as error:
        response = error
    with response:
        raw = response.read()
    kind = response.headers["Content-Type"]
    return response.status, response.headers, json.loads(raw) if "json" in kind else raw.decode()


def write(folder: Path) -> Path:
    """Write the endless model as a folder."""
    from pellucid.tasks.folder import save_model

    save_model(folder, PIPELINES["endless"], "")
    return folder


def apart(work: Coroutine[None, None, T]) -> T:
    """Run a coroutine on a loop of its own, in a thread: this one's may be a browser's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
