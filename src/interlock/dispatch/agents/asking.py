"""From a request to what an adapter is asked, and to the environment that its CLI starts from."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

from interlock.dispatch.agents.base import Adapter, Ask
from interlock.dispatch.agents.live import LiveAdapter
from interlock.dispatch.base import EngineCall, EngineSettings, Job, Request
from interlock.dispatch.processes.markers import VARIABLE, Marker
from interlock.dispatch.prompts.schema import with_schema

_SESSIONS: Final = uuid.UUID("6f0cbb4e-6a5c-4e0f-9d8e-2b1c1c1f7a10")


def ask_of(
    request: Request,
    settings: EngineSettings,
    api_key: str | None,
    folder: Path,
    state: Path,
    chosen: Adapter | LiveAdapter,
    env: dict[bytes, bytes],
) -> Ask:
    """Return what the adapter is asked; the schema goes into the prompt where the CLI cannot enforce one."""
    job = request.job
    call = job.call or EngineCall(engine=settings.name, kind="agent", driver=settings.driver)
    session = None if "session" in chosen.card.cannot else request.session
    return Ask(
        engine=settings.name,
        prompt=prompt_of(request, chosen, cold=session is None),
        cwd=request.folder,
        folder=str(folder),
        state=str(state),
        new_session=str(uuid.uuid5(_SESSIONS, f"{job.run_id}/{request.dispatch}")),
        session=session,
        session_usage=request.session_usage,
        model=call.model,
        schema_json=call.schema_json,
        temperature=call.temperature,
        max_tokens=call.max_tokens,
        extra_params_json=call.extra_params_json,
        base_url=settings.base_url,
        api_key=api_key,
        args=settings.args,
        command=settings.command,
        output=settings.output,
        timeout_ms=job.timeout_ms,
        env={os.fsdecode(name): os.fsdecode(value) for name, value in env.items()},
    )


def prompt_of(request: Request, chosen: Adapter | LiveAdapter, *, cold: bool) -> str:
    """Return the text to send: outside of the session that was asked for, one that stands by itself."""
    text = (request.cold_prompt if cold else None) or request.prompt or ""
    schema = request.job.call.schema_json if request.job.call is not None else None
    return text if schema is None or chosen.card.enforces_schema else with_schema(text, schema)


def environment(
    request: Request, base: dict[bytes, bytes], values: dict[str, str], marker: Marker
) -> dict[bytes, bytes]:
    """Return what the CLI inherits: the user's environment, the job's values, and by whom it was started."""
    job: Job = request.job
    env = base | {os.fsencode(name): os.fsencode(value) for name, value in values.items()}
    env[b"PWD"] = os.fsencode(request.folder)
    env[b"INTERLOCK_RUN_ID"] = job.run_id.encode()
    env[b"INTERLOCK_STEP_ID"] = job.step_id.encode()
    env[b"INTERLOCK_UNIT_ID"] = request.unit_id.encode()
    env[b"INTERLOCK_ATTEMPT"] = b"%d" % request.attempt
    env[b"INTERLOCK_IDEMPOTENCY_KEY"] = request.idempotency_key.encode()
    env[VARIABLE.encode()] = marker.value(request.dispatch).encode()
    return env
