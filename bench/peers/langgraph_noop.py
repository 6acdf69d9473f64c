"""LangGraph with its SQLite checkpointer: a graph that fans out to N no-op tasks. Prints units per second."""

from __future__ import annotations

import operator
import sys
import time
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send


class State(TypedDict):
    """What the graph carries."""

    items: list[int]
    done: Annotated[list[int], operator.add]


def noop(state: dict[str, int]) -> dict[str, list[int]]:
    """Do nothing."""
    return {"done": [state["item"]]}


def main(units: int, folder: str) -> None:
    """Measure from building the graph to its end."""
    began = time.perf_counter()
    graph = StateGraph(State)
    graph.add_node("noop", noop)
    graph.add_conditional_edges(START, lambda state: [Send("noop", {"item": i}) for i in state["items"]], ["noop"])
    graph.add_edge("noop", END)
    with SqliteSaver.from_conn_string(f"{folder}/langgraph.sqlite") as saver:
        app = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "1"}, "max_concurrency": 8}
        app.invoke({"items": list(range(units)), "done": []}, config)
    print(units / (time.perf_counter() - began))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
