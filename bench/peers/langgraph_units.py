"""LangGraph with its SQLite checkpointer: a graph that fans out to N tasks of a KIND, 8 at a time. Prints units per second.

Called again with `--resume` in the same folder it goes on with what has no checkpoint yet.
"""

from __future__ import annotations

import operator
import sys
import time
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from work import KINDS


class State(TypedDict):
    """What the graph carries."""

    items: list[int]
    done: Annotated[list[int], operator.add]


def main(kind: str, units: int, folder: str, *, resume: bool) -> None:
    """Measure from building the graph to its end."""
    began = time.perf_counter()
    work = KINDS[kind]

    def unit(state: dict[str, int]) -> dict[str, list[int]]:
        work(folder)
        return {"done": [state["item"]]}

    graph = StateGraph(State)
    graph.add_node("unit", unit)
    graph.add_conditional_edges(START, lambda state: [Send("unit", {"item": i}) for i in state["items"]], ["unit"])
    graph.add_edge("unit", END)
    with SqliteSaver.from_conn_string(f"{folder}/langgraph.sqlite") as saver:
        app = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "1"}, "max_concurrency": 8}
        app.invoke(None if resume else {"items": list(range(units)), "done": []}, config)
    print(units / (time.perf_counter() - began))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], resume="--resume" in sys.argv)
