"""A tiny model behind a real server in a thread, the official client, and `LLM` over the same model as the truth."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from draftproof import LLM
from draftproof.engine.build import build_each
from draftproof.engine.options import EngineOptions
from draftproof.serve.build import Served, serve_built
from draftproof.serve.journal import Journal
from draftproof.serve.run import bind, make_server
from draftproof.serve.service import Service
from draftproof.serve.settings import ServeSettings, parse_drafters
from draftproof.serve.tally import Tally
from draftproof.serve.treatment import make_chooser

LABELS = ("suffix", "ngram", "early_exit")
ENGINE = {"threads": 1, "kv_memory": 1 << 23, "weights": "int8", "max_sequences": 8}


def _make_folder(path: Path) -> Path:
    """The tiny target of the engine's tests."""
    spec = importlib.util.spec_from_file_location("engine_conftest", Path(__file__).parents[1] / "engine/conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make_folder(path)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target: a byte tokenizer, a context of 256."""
    return _make_folder(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def built(folder: Path, cache_dir: Path) -> Any:
    """Engines of all drafters over one target, loaded once."""
    options = [EngineOptions(str(folder), drafter=name, cache_dir=cache_dir, **ENGINE) for name in LABELS]
    return build_each(options, lambda _: None)


@pytest.fixture(scope="session")
def truth(folder: Path, cache_dir: Path) -> Iterator[LLM]:
    """Plain decoding by the library."""
    with LLM(folder, cache_dir=cache_dir, **ENGINE) as llm:
        yield llm


@dataclass
class Running:
    """A server in a thread."""

    service: Service
    url: str
    log: io.StringIO
    _server: Any
    _thread: threading.Thread
    _loop: asyncio.AbstractEventLoop
    clients: list[Any] = field(default_factory=list)

    @property
    def served(self) -> Served:
        return self.service.served

    def client(self, **options: Any) -> openai.OpenAI:
        made = openai.OpenAI(base_url=f"{self.url}/v1", **{"api_key": "x", "max_retries": 0, "timeout": 60} | options)
        self.clients.append(made)
        return made

    def http(self) -> httpx.Client:
        made = httpx.Client(base_url=self.url, timeout=60)
        self.clients.append(made)
        return made

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log's lines of one kind."""
        found = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in found if line["event"] == event]

    def drain(self) -> None:
        """What a signal does."""
        self._loop.call_soon_threadsafe(self._server.drain)

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        if self._thread.is_alive():
            self.drain()
        self._thread.join(60)
        assert not self._thread.is_alive()


def _start(service: Service, log: io.StringIO) -> Running:
    listening = bind("127.0.0.1", 0)
    started = threading.Event()
    found: list[asyncio.AbstractEventLoop] = []

    def ready() -> None:
        found.append(asyncio.get_running_loop())
        started.set()

    server = make_server(service, ready)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    assert started.wait(30)
    return Running(service, f"http://127.0.0.1:{listening.getsockname()[1]}", log, server, thread, found[0])


@pytest.fixture
def serve(built: Any) -> Iterator[Callable[..., Running]]:
    """serve(drafters=(...), **settings) -> Running; its pages are checked for leaks at the end."""
    running: list[Running] = []

    def make(drafters: tuple[str, ...] = LABELS, **settings: Any) -> Running:
        chosen = ServeSettings(drafters=parse_drafters(drafters), engine=ENGINE, **{"grace": 5.0} | settings)
        served = serve_built([built[LABELS.index(label)] for label in drafters] or built[:1], list(drafters))
        log = io.StringIO()
        tally, journal = Tally(), Journal(log)
        service = Service(chosen, served, make_chooser(chosen, tally, journal), tally, journal)
        running.append(_start(service, log))
        return running[-1]

    yield make
    for each in running:
        each.stop()
        served = each.served
        served.ledger.check()
        assert served.ledger.free_pages == served.ledger.num_pages
        assert not served.engine.has_work
        assert each.service.line.taken == 0
        assert not served.routes.drafter._routes


@pytest.fixture
def server(serve: Callable[..., Running]) -> Running:
    """With all drafters, no policy."""
    return serve()
