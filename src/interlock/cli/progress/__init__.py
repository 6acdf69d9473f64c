"""Live progress of a run: a feed that the loop fills and one renderer that drains it in its own thread."""
