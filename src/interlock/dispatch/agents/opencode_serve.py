"""opencode as a server: one process for all prompts of a run with the same folder and environment.

Guarantees: it is started when the first prompt needs it and serves all others, and it is gone when the run is.

"""

from __future__ import annotations

from typing import Final

from interlock.dispatch.agents.base import Card
from interlock.dispatch.agents.helpers import Key
from interlock.dispatch.agents.live import Said, Talk
from interlock.dispatch.agents.opencode_config import environment
from interlock.dispatch.agents.opencode_conversation import AUTO, Conversation
from interlock.dispatch.agents.opencode_server import start, ticks_below


class OpencodeServeAdapter:
    """`opencode serve`, spoken to over HTTP on loopback."""

    card: Final = Card(
        program="opencode",
        cannot=frozenset({"temperature", "max_tokens", "extra_params"}),
        caveats=(
            "Folders outside of the working directory are refused to it, unless `args` say `--auto`.",
            "Prompts of one folder and environment share a server: processor time of their tools counts as progress for all.",
        ),
    )

    def converse(self, talk: Talk) -> Said:
        """Have one prompt answered."""
        ask = talk.ask
        argv = (*ask.program(self.card), "serve", "--hostname", "127.0.0.1", "--port", "0")
        argv += tuple(arg for arg in ask.args if arg != AUTO)
        env = talk.env | {name.encode(): value.encode() for name, value in environment(ask).items()}
        key = Key.of(argv, ask.cwd, env)
        lock, place = talk.helpers.shared(key)
        with lock:
            if place and not place[0].alive():
                talk.helpers.end(place.pop())
            if not place:
                place.append(start(argv, env, talk))
            helper = place[0]
        talk.watch.cpu_ticks = lambda: ticks_below(helper)
        if helper.process is not None:
            talk.report(helper.process)
        return Conversation(helper, talk).run()


OPENCODE_SERVE: Final = OpencodeServeAdapter()
