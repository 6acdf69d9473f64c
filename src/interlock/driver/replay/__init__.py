"""A recorded run, played back: nothing is dispatched, what was answered is given again, and what differs is told."""
