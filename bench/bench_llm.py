"""Prompts through PromptRunner against a bare pool of threads with the same SDK, in the same run, by one scripted server."""

from __future__ import annotations

import json
import queue
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai

from interlock.dispatch.base import EngineCall, EngineSettings, Job, Outcome, Report, Request
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.prompts.runner import PromptRunner
from interlock.model.plan import Prompt

PROMPTS = 200
CONCURRENCY = 64
ROUNDS = 7
LATENCY_S = 0.05
WANTED = 0.8
ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def model_server(folder: Path) -> Iterator[str]:
    port = folder / "port"
    argv = [sys.executable, "-m", "tests.modelserver.fakellm", "--port", "0", "--port-file", str(port)]
    server = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while not (port.exists() and port.read_text()):
            assert server.poll() is None, "the scripted server did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port.read_text()}"
    finally:
        server.terminate()
        server.wait()


def said(url: str, body: Any = None) -> Any:  # noqa: ANN401 - JSON
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, {"content-type": "application/json"})) as answer:  # noqa: S310 - loopback
        return json.loads(answer.read())


def bare(url: str) -> float:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

        def one(number: int) -> None:
            messages: Any = [{"role": "user", "content": f"prompt {number}"}]
            assert client.chat.completions.create(model="fake-model", messages=messages).choices[0].message.content

        with ThreadPoolExecutor(CONCURRENCY) as pool:
            began = time.perf_counter()
            list(pool.map(one, range(PROMPTS)))
            return PROMPTS / (time.perf_counter() - began)


class NoAgents:
    def answer(self, *_: object) -> Outcome:
        raise AssertionError

    def close(self) -> None:
        pass


def engine(url: str, folder: Path, term: int) -> tuple[float, int]:
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    settings = EngineSettings(name="bench", kind="llm", driver="openai", base_url=f"{url}/v1", concurrency=CONCURRENCY)
    log = RunLog(folder / f"run-{term}.log")
    runner = PromptRunner(
        reports.put,
        lambda _: ResolvedEnv({}, NullRedactor()),
        lambda _: settings,
        log,
        NoAgents(),
        environ={"HOME": str(folder)},
    )
    call = EngineCall(engine="bench", kind="llm", driver="openai", model="fake-model")
    job = Job(
        key="1",
        run_id="bench",
        step_id="step",
        step=0,
        target=Prompt(text="", engine="bench"),
        call=call,
        cwd=str(folder),
    )

    def start(number: int) -> None:
        runner.start(
            Request(
                job=job,
                dispatch=f"d{term}-{number}",
                unit_id=f"step:{number:016x}",
                attempt=1,
                idempotency_key=f"key-{number}",
                prompt=f"prompt {number}",
            )
        )

    began = time.perf_counter()
    for number in range(CONCURRENCY):
        start(number)
    started, ended, tokens = CONCURRENCY, 0, 0
    while ended < PROMPTS:
        report = reports.get()
        if isinstance(report, Outcome):
            assert report.status == "ok", report
            assert report.usage is not None
            tokens += (report.usage.input_tokens or 0) + (report.usage.output_tokens or 0)
            ended += 1
            if started < PROMPTS:
                start(started)
                started += 1
    took = time.perf_counter() - began
    runner.close()
    log.close()
    return PROMPTS / took, tokens


def main() -> None:
    with tempfile.TemporaryDirectory() as name, model_server(Path(name)) as url:
        folder = Path(name)
        usage = {"in": 100, "out": 10}
        said(f"{url}/__script", {"default": {"echo": True, "delay": LATENCY_S, "usage": usage}})
        print(
            f"{PROMPTS} prompts, {CONCURRENCY} at a time, {LATENCY_S * 1000:.0f} ms each; median of {ROUNDS}; per second"
        )
        pairs = []
        for term in range(ROUNDS):
            raw = bare(url)
            said(f"{url}/__reset", {})
            said(f"{url}/__script", {"default": {"echo": True, "delay": LATENCY_S, "usage": usage}})
            ours, tokens = engine(url, folder, term)
            served = said(f"{url}/__log")
            assert len(served) == PROMPTS, f"{len(served)} calls reached the server"
            assert tokens == PROMPTS * sum(usage.values()), f"{tokens} tokens were counted"
            pairs.append((raw, ours))
        raw, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(mine / theirs for theirs, mine in pairs)
        print(f"bare pool {raw:6.0f}   PromptRunner {ours:6.0f}   ratio {ratio:.2f} (wanted: {WANTED})")
    if ratio < WANTED and "--report" not in sys.argv:
        sys.exit(1)


if __name__ == "__main__":
    main()
