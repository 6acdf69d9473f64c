"""The coding agents that the end-to-end tests start, and how an engine ties each of them to the scripted server."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent.parent
KEY = "MODEL_KEY"
KEY_VALUE = "dummy-key-of-the-tests"
MODEL = "fake-model"


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One way of reaching one CLI. `path` is what stands between the server's address and the API's own paths."""

    name: str
    program: str
    driver: str
    path: str = ""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    """Set for all of interlock, where its own engine's settings do not reach the agent. `{url}` is the server's."""
    files: Mapping[str, str] = {}
    """Put into HOME."""
    shell_input: str = "command"
    """What its shell tool calls the command."""

    def engine(self, url: str, **more: Any) -> dict[str, Any]:
        """Return what stands under `[engines.X]`."""
        settings: dict[str, Any] = {"kind": "agent", "agent": self.driver, "model": MODEL}
        if self.driver == "acp":
            settings["command"] = list(self.command)
        else:
            settings |= {"base_url": url + self.path, "api_key": f"${KEY}"}
        return settings | more


def opencode_config() -> str:
    options = {"baseURL": "{url}/v1", "apiKey": KEY_VALUE}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {MODEL: {}}}
    chosen = f"fake/{MODEL}"
    quiet = {"autoupdate": False, "share": "disabled", "permission": {"*": "allow"}}
    return json.dumps({"model": chosen, "small_model": chosen, "provider": {"fake": provider}, **quiet})


GEMINI_SETTINGS = json.dumps(
    {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"maxAttempts": 1, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
)
QWEN_SETTINGS = json.dumps({"model": {"generationConfig": {"maxRetries": 0}}})

NATIVE = (
    Agent(name="claude", program="claude", driver="claude"),
    Agent(name="codex", program="codex", driver="codex", path="/v1", shell_input="cmd"),
    Agent(name="opencode", program="opencode", driver="opencode", path="/v1"),
    Agent(name="opencode-serve", program="opencode", driver="opencode-serve", path="/v1"),
    Agent(name="gemini", program="gemini", driver="gemini"),
    Agent(name="qwen", program="qwen", driver="qwen", path="/v1"),
    Agent(name="copilot", program="copilot", driver="copilot", path="/v1"),
    Agent(name="pi", program="pi", driver="pi", path="/v1"),
)
ACP = (
    Agent(
        name="acp-opencode",
        program="opencode",
        driver="acp",
        command=("opencode", "acp"),
        env={
            "OPENCODE_CONFIG_CONTENT": opencode_config(),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        },
    ),
    Agent(
        name="acp-gemini",
        program="gemini",
        driver="acp",
        command=("gemini", "--acp", "-m", MODEL),
        env={
            "GEMINI_API_KEY": KEY_VALUE,
            "GOOGLE_GEMINI_BASE_URL": "{url}",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_CLI_NO_RELAUNCH": "1",
        },
        files={".gemini/settings.json": GEMINI_SETTINGS},
    ),
    Agent(
        name="acp-qwen",
        program="qwen",
        driver="acp",
        command=("qwen", "--acp", "--auth-type", "openai"),
        env={"OPENAI_API_KEY": KEY_VALUE, "OPENAI_BASE_URL": "{url}/v1", "OPENAI_MODEL": MODEL},
        files={".qwen/settings.json": QWEN_SETTINGS},
    ),
    Agent(
        name="acp-copilot",
        program="copilot",
        driver="acp",
        command=("copilot", "--acp"),
        env={
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": "{url}/v1",
            "COPILOT_PROVIDER_API_KEY": KEY_VALUE,
            "COPILOT_MODEL": MODEL,
            "COPILOT_AUTO_UPDATE": "false",
        },
    ),
)
ALL = {agent.name: agent for agent in (*NATIVE, *ACP)}


def programs() -> str:
    """Return the folder with the installed agents; an own set is named by INTERLOCK_AGENTS."""
    return str(Path(os.environ.get("INTERLOCK_AGENTS", ROOT / ".agents")) / "bin")


def missing(agent: Agent) -> str | None:
    """Return why the agent cannot be started here, or None when it can."""
    if shutil.which(agent.program, path=programs()):
        return None
    return f"{agent.program} is not installed in {programs()}: tools/setup_agents.sh puts it there"
